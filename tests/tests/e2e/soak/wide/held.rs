//! What services hold: descriptors and memory, which stay bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::World;

use crate::soak::services::Service;

/// How many more descriptors a service may come to hold than after the first jobs. `MORE_KIB` is
/// the same limit for memory, as caches fill.
const MORE_DESCRIPTORS: u64 = 100;
const MORE_KIB: u64 = 64 << 10;
/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(60);

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: u64,
    /// Resident memory of the process in KiB, as its machine sees it.
    kib: u64,
}

/// What each service holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct All(BTreeMap<Service, Held>);

impl All {
    /// What these services hold at this moment.
    pub(super) fn now(world: &World, services: &[Service]) -> Result<Self> {
        let one = |service: &Service| Ok((*service, held(world, *service)?));
        Ok(Self(services.iter().map(one).collect::<Result<_>>()?))
    }

    /// Texts about the services that hold too much more than `before`.
    pub(super) fn beyond(&self, before: &Self) -> Vec<String> {
        let is_more = |(service, now): &(&Service, &Held)| {
            before.0.get(*service).is_some_and(|before| {
                now.descriptors > before.descriptors + MORE_DESCRIPTORS || now.kib > before.kib + MORE_KIB
            })
        };
        let text = |((machine, role), now): (&Service, &Held)| {
            let before = before.0.get(&(*machine, *role));
            format!("{role} of {machine} holds {now:?}, and after the first jobs {before:?}")
        };
        self.0.iter().filter(is_more).map(text).collect()
    }
}

fn held(world: &World, (machine, role): Service) -> Result<Held> {
    let process = format!("/proc/{}", world.service(machine, role)?);
    let script = format!(
        "ls {process}/fd | wc -l; sed -n 's/^VmRSS:[[:space:]]*\\([0-9]*\\) kB$/\\1/p' {process}/status"
    );
    let done = world.sh(machine, SOON, &["sh", "-c", &script])?;
    ensure!(done.status == 0, "{}", done.whole());
    let mut numbers = done.stdout.split_whitespace().map(str::parse);
    let mut next = || numbers.next().context("too few numbers");
    Ok(Held { descriptors: next()??, kib: next()?? })
}

#[test]
fn services_that_hold_far_more_than_before_are_named() {
    let all =
        |descriptors, kib| All([(("n1.alpha", "agent"), Held { descriptors, kib })].into_iter().collect());
    let before = all(30, 20_000);
    for (now, want) in [
        (all(30, 20_000), false),
        (all(130, 85_536), false),
        (all(131, 20_000), true),
        (all(30, 85_537), true),
        (all(10, 100), false),
    ] {
        assert_eq!(!now.beyond(&before).is_empty(), want, "{now:?}");
    }
}

//! How fast the ways between sites are: has one node of each pair of sites
//! measure, now and then, without anybody asking, and keeps what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isthmus_net::contact::plan_from_facts;
use isthmus_plan::measuring::{self, Pair, Party, Task};
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

use super::{Effect, NodeEntry, Presence, Registry, SessionId};
use crate::config::Measure;

/// Sites that take part at most; their pairs are looked through again and again.
const MOST_SITES: usize = 256;
/// How long the bandwidth of another way than is taken now is put up with: a way
/// that comes and goes isn't measured each time.
const NEW_WAY: Duration = Duration::from_secs(3600);

/// Two sites, in the order of their names.
type SitePair = (Label, Label);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct SitePaths {
    paths: BTreeMap<SitePair, SitePath>,
    /// When the last measurement with a site began.
    begun_unix_seconds: BTreeMap<Label, u64>,
}

#[derive(Debug, Default)]
struct SitePath {
    asked_unix_seconds: u64,
    /// Who measures, as long as nothing came of it.
    running: Option<(GridName, GridName)>,
    last: Option<proto::PathReport>,
    transfer: Option<Transfer>,
}

/// How fast a transfer was.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    way: (proto::Route, proto::Dial),
    sent_bytes_per_second: u64,
    received_bytes_per_second: u64,
    unix_ms: u64,
}

/// A node that may stand for its site.
struct Delegate<'a> {
    address: VirtualAddress,
    entry: &'a NodeEntry,
    gateway: SessionId,
}

impl SitePaths {
    /// What is known of each pair.
    pub(super) fn all(&self) -> impl Iterator<Item = proto::PathReport> {
        self.paths.values().filter_map(SitePath::told)
    }

    /// What a node that was ordered to has found. Of others nothing is taken.
    pub(super) fn measured_unasked(&mut self, nodes: (GridName, GridName), report: proto::PathReport) {
        let path = self.paths.get_mut(&site_pair(&nodes.0.site, &nodes.1.site));
        if let Some(path) = path.filter(|path| path.running.as_ref() == Some(&nodes)) {
            path.running = None;
            path.take(report);
        }
    }

    /// What was found because somebody asked counts likewise, if it is of the
    /// direction that would be measured.
    pub(super) fn take(&mut self, (from, to): &(GridName, GridName), report: proto::PathReport) {
        if from.site != to.site && initiator(&from.site, &to.site) == &from.site {
            self.paths.entry(site_pair(&from.site, &to.site)).or_default().take(report);
        }
    }

    /// Those of whom one is being measured.
    fn measuring(&self, now: u64) -> impl Iterator<Item = &Label> {
        let running = self.paths.iter().filter(move |(_, path)| {
            path.running.is_some() && age(path.asked_unix_seconds, now) < measuring::PATIENCE
        });
        running.flat_map(|((a, b), _)| [a, b])
    }

    fn pair(&self, sites: &SitePair, parties: [usize; 2], now: u64) -> Pair {
        let Some(path) = self.paths.get(sites) else { return Pair { parties, ..Pair::default() } };
        let way = path.last.as_ref().map(|last| (last.route(), last.dial()));
        let transferred = path.transfer.and_then(|transfer| {
            let age = age(transfer.unix_ms / 1000, now);
            (Some(transfer.way) == way || age < NEW_WAY).then_some(age)
        });
        Pair {
            parties,
            asked: (path.asked_unix_seconds > 0).then(|| age(path.asked_unix_seconds, now)),
            transferred,
            failed: path.last.as_ref().is_none_or(|last| !last.failure.is_empty()),
            chance: chance(sites, path.asked_unix_seconds),
        }
    }

    fn begin(&mut self, sites: SitePair, nodes: Option<(GridName, GridName)>, now: u64) {
        if nodes.is_some() {
            for site in [&sites.0, &sites.1] {
                self.begun_unix_seconds.insert(site.clone(), now);
            }
        }
        let path = self.paths.entry(sites).or_default();
        (path.asked_unix_seconds, path.running) = (now, nodes);
    }
}

impl SitePath {
    fn take(&mut self, report: proto::PathReport) {
        if report.transferred_unix_ms > 0 && report.failure.is_empty() {
            self.transfer = Some(Transfer {
                way: (report.route(), report.dial()),
                sent_bytes_per_second: report.sent_bytes_per_second,
                received_bytes_per_second: report.received_bytes_per_second,
                unix_ms: report.transferred_unix_ms,
            });
        }
        self.last = Some(report);
    }

    /// What was found last, with the bandwidth of that way, which is from
    /// before.
    fn told(&self) -> Option<proto::PathReport> {
        let mut told = self.last.clone()?;
        let same = |transfer: &Transfer| transfer.way == (told.route(), told.dial());
        if let Some(transfer) = self.transfer.filter(|transfer| told.failure.is_empty() && same(transfer)) {
            told.sent_bytes_per_second = transfer.sent_bytes_per_second;
            told.received_bytes_per_second = transfer.received_bytes_per_second;
            told.transferred_unix_ms = transfer.unix_ms;
        }
        Some(told)
    }
}

impl Registry {
    /// Has those ways between sites measured that are due.
    pub fn measure_due(&mut self, now_unix_seconds: u64) -> Vec<Effect> {
        if self.policy.measure == Measure::Off {
            return Vec::new();
        }
        let now = now_unix_seconds;
        let delegates = self.delegates();
        let parties = self.parties(&delegates, now);
        let mut pairs = Vec::new();
        for (a, one) in delegates.iter().enumerate() {
            for (b, other) in delegates.iter().enumerate().skip(a + 1) {
                let sites = site_pair(&one.entry.name.site, &other.entry.name.site);
                pairs.push(self.site_paths.pair(&sites, [a, b], now));
            }
        }
        let mut begun = Vec::new();
        for task in measuring::due(&parties, &pairs) {
            let both = pairs.get(task.pair).map(|pair| pair.parties.map(|party| delegates.get(party)));
            if let Some([Some(a), Some(b)]) = both {
                let sites = site_pair(&a.entry.name.site, &b.entry.name.site);
                begun.push((sites, self.order(a, b, task)));
            }
        }
        let mut effects = Vec::new();
        for (sites, order) in begun {
            let (nodes, effect) = order.unzip();
            self.site_paths.begin(sites, nodes, now);
            effects.extend(effect);
        }
        effects
    }

    /// The order to measure, unless there is no way.
    fn order(
        &self,
        a: &Delegate<'_>,
        b: &Delegate<'_>,
        task: Task,
    ) -> Option<((GridName, GridName), Effect)> {
        let (a_site, b_site) = (&a.entry.name.site, &b.entry.name.site);
        let (from, to) = if initiator(a_site, b_site) == a_site { (a, b) } else { (b, a) };
        let facts = self.facts(&from.entry.name.site, to.entry);
        if plan_from_facts(&self.end(from.entry), &facts).steps.is_empty() {
            return None;
        }
        let order = proto::MeasureOrder {
            node: from.entry.name.node.to_string(),
            destination: to.address.ip().into(),
            background: true,
            transfer: task.transfer,
        };
        let effect = Effect::Send { to: from.gateway, message: attach_down::Kind::Measure(order) };
        Some(((from.entry.name.clone(), to.entry.name.clone()), effect))
    }

    fn parties(&self, delegates: &[Delegate<'_>], now: u64) -> Vec<Party> {
        let busy: BTreeSet<&str> = self.at_work().filter_map(|node| Some(node.split_once('.')?.1)).collect();
        let asked = self.paths.running(now).flat_map(|(from, to)| [&from.site, &to.site]);
        let measuring: BTreeSet<&Label> = self.site_paths.measuring(now).chain(asked).collect();
        let party = |delegate: &Delegate<'_>| {
            let site = &delegate.entry.name.site;
            let begun = self.site_paths.begun_unix_seconds.get(site);
            Party {
                busy: busy.contains(site.as_str()),
                last: begun.map(|begun| age(*begun, now)),
                measuring: measuring.contains(site),
            }
        };
        delegates.iter().map(party).collect()
    }

    /// The nodes that stand for the sites that take part: those without a job,
    /// if there are such. They must have found out how they are seen from
    /// outside: before that, worse ways are planned than are taken later.
    fn delegates(&self) -> Vec<Delegate<'_>> {
        let at_work: BTreeSet<&str> = self.at_work().collect();
        let no_relays = self.relays_up() == 0;
        let mut best: BTreeMap<&Label, (bool, Delegate<'_>)> = BTreeMap::new();
        for (address, entry) in &self.nodes {
            let site = &entry.name.site;
            let taking_part = self.sites.get(site).filter(|site| !site.measure_off);
            let Some(gateway) = taking_part.and_then(|site| site.session) else { continue };
            let found_out = entry
                .contact
                .seen
                .as_ref()
                .is_some_and(|seen| seen.measured_unix_ms > 0 || seen.way_out() == proto::WayOut::No);
            if entry.presence != Presence::Up || !(found_out || no_relays) {
                continue;
            }
            let works = at_work.contains(entry.name.to_string().as_str());
            if best.get(site).is_none_or(|(best_works, _)| *best_works && !works) {
                best.insert(site, (works, Delegate { address: *address, entry, gateway }));
            }
        }
        best.into_values().map(|(_, delegate)| delegate).take(MOST_SITES).collect()
    }

    /// Names of nodes on which jobs run.
    fn at_work(&self) -> impl Iterator<Item = &str> {
        self.jobs.all().flat_map(|job| &job.nodes).map(String::as_str)
    }
}

fn site_pair(a: &Label, b: &Label) -> SitePair {
    if a <= b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) }
}

/// Which of two sites measures: either one for half of the others.
pub(super) fn initiator<'a>(a: &'a Label, b: &'a Label) -> &'a Label {
    let even = (sum(a.as_str()) ^ sum(b.as_str())) & 1 == 0;
    if even == (a <= b) { a } else { b }
}

/// A number for a text, which differs between texts (FNV-1a, 32 bits).
fn sum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn chance((a, b): &SitePair, asked_unix_seconds: u64) -> u8 {
    let [chance, ..] = sum(&format!("{a} {b} {asked_unix_seconds}")).to_le_bytes();
    chance
}

fn age(then_unix_seconds: u64, now: u64) -> Duration {
    Duration::from_secs(now.saturating_sub(then_unix_seconds))
}

//! Services that are killed, and started again.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::Result;
use isthmus_e2e::{Job, World, isthmus};

/// A service, by its machine and its role.
pub(super) type Service = (&'static str, &'static str);

/// How long after the soak's end a service is ended in any case.
const BEYOND: Duration = Duration::from_secs(600);
/// Time within which a service that was started again serves. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// How many bytes of a service's log are shown at most.
const SHOWN: usize = 20_000;

/// The services that were started again. They end when this value is dropped.
pub(super) struct Services {
    again: Vec<(Service, Job)>,
    lasts: Duration,
}

impl Services {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { again: Vec::new(), lasts }
    }

    /// Kills a service, whether the lab or the test has started it.
    pub(super) fn kill(&mut self, world: &World, service: Service) -> Result<()> {
        let (machine, role) = service;
        world.kill(machine, "-KILL", &world.service(machine, role)?)?;
        self.again.retain(|(known, _)| *known != service);
        Ok(())
    }

    /// Starts a killed service again, as a service manager does. If it ends before it serves, as an
    /// agent does whose gateway is away, it is started anew. It writes a new log each time. The log
    /// is a file, as nobody reads a pipe meanwhile.
    pub(super) fn start(&mut self, world: &World, service: Service) -> Result<()> {
        let (machine, role) = service;
        let (binary, state) = (isthmus().display().to_string(), format!("/var/lib/isthmus/{role}"));
        let (config, log) = (World::config(role), log(world, service));
        let script = "log=$1; shift; until \"$@\" 2>\"$log\" || grep -q ' ready' \"$log\"; do sleep 1; done";
        let words = ["sh", "-c", script, "sh", log.as_str()];
        let words = [&words[..], &[binary.as_str(), role, "--state", &state, "--config", &config]].concat();
        // What an earlier run of the service has written doesn't count.
        let _ = fs::remove_file(&log);
        let job = Job::start(world.command(machine, self.lasts + BEYOND, &words)?)?;
        self.again.push((service, job));
        Ok(())
    }

    /// Waits until a service that was started again serves. Before that, a signal to it may be
    /// lost.
    pub(super) fn ready(world: &World, service: Service) -> Result<()> {
        let (machine, role) = service;
        World::eventually(&format!("{role} of {machine} is ready"), SOON, || {
            Ok(Self::is_ready(world, service))
        })
    }

    /// Whether a service that was started again serves.
    pub(super) fn is_ready(world: &World, service: Service) -> bool {
        fs::read_to_string(log(world, service)).is_ok_and(|log| log.contains(" ready"))
    }

    /// The ends of the logs of all services that were started again.
    pub(super) fn logs(&self, world: &World) -> String {
        let mut all = String::new();
        for (service, _) in &self.again {
            let text = fs::read_to_string(log(world, *service)).unwrap_or_default();
            let (machine, role) = service;
            let _ = writeln!(all, "==> {role} of {machine}, started again <==\n{}", tail(&text));
        }
        all
    }
}

fn log(world: &World, (machine, role): Service) -> String {
    world.directory.path().join(format!("{role}.{machine}.log")).display().to_string()
}

/// The last [`SHOWN`] bytes of a text, from the beginning of a character.
fn tail(text: &str) -> &str {
    let first = text.len().saturating_sub(SHOWN);
    let at = (first..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.get(at..).unwrap_or_default()
}

#[test]
fn a_long_log_is_cut_at_a_character() {
    assert_eq!(tail("short"), "short");
    // Each character has two bytes, and the cut would be in the middle of one.
    let long = format!("x{}", "ä".repeat(SHOWN));
    assert_eq!(tail(&format!("{long}y")).len(), SHOWN - 1);
}

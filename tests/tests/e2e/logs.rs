//! The way of one connection in the logs of all services, found by its id.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Places, World, isthmus, root, target, write_program};
use isthmus_lab::lab::Options;
use isthmus_lab::{Grid, Lab};

/// Writes a program that runs isthmus with its logs at `debug`. Returns its path.
fn talkative(directory: &Path) -> Result<std::path::PathBuf> {
    let path = directory.join("isthmus");
    let script = format!("#!/bin/sh\nISTHMUS_LOG=debug exec {} \"$@\"\n", isthmus().display());
    write_program(&path, script.as_bytes(), 0o755)?;
    Ok(path)
}

/// The lines of each service's log, by the service's name.
fn logs(lab: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let (mut logs, mut service) = (BTreeMap::<_, Vec<String>>::new(), String::new());
    for line in isthmus_e2e::logs(lab)?.lines() {
        match line.strip_prefix("==> ").and_then(|line| line.strip_suffix(" <==")) {
            Some(name) => name.clone_into(&mut service),
            None => logs.entry(service.clone()).or_default().push(line.to_owned()),
        }
    }
    Ok(logs)
}

/// Id of the last connection that a program asked for, from the log of the initiator's agent.
fn connection(log: &[String]) -> Result<String> {
    let line = log.iter().rev().find(|line| line.contains("a program connects")).context("none asked")?;
    let (_, id) = line.split_once("connection{id=").context("no id")?;
    Ok(id.chars().take(24).collect())
}

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);

/// Each service with what it notes about the connection, in this order.
const WAY: [(&str, &[&str]); 5] = [
    ("agent at n1.alpha", &["a program connects", "looked up", "a step", "connected", "handed over"]),
    ("gateway at n1.alpha", &["Registry/Rendezvous"]),
    ("broker at hub", &["Registry/Rendezvous"]),
    ("relay at hub", &["spliced"]),
    ("agent at n1.beta", &["ordered to dial", "a preamble", "knocked", "handed over"]),
];

/// The notes of the services about the last connection, each with its time.
fn way(logs: &BTreeMap<String, Vec<String>>) -> Result<Vec<(&'static str, String)>> {
    let of = |service: &str| logs.get(service).with_context(|| format!("no log of the {service}"));
    let id = connection(of("agent at n1.alpha")?)?;
    let mut times = Vec::new();
    for (service, notes) in WAY {
        let lines: Vec<_> = of(service)?.iter().filter(|line| line.contains(&id)).collect();
        let mut rest = lines.iter();
        for note in notes {
            let line = rest.find(|line| line.contains(note));
            let line = line.with_context(|| format!("{service}: no {note:?} in its place: {lines:#?}"))?;
            times.push((*note, line.split_whitespace().next().unwrap_or_default().to_owned()));
        }
    }
    Ok(times)
}

#[test]
fn one_id_leads_through_the_logs_of_all_services() -> Result<()> {
    let _place = Places::one();
    let mut grid = Grid::load(&root().join("tests/grids/four-sites.toml"))?;
    grid.name = format!("logs-{}", std::process::id());
    // Every connection has a socket of its own, is dialed, and asks all services.
    grid.trusted.push(["alpha", "beta"].map(ToOwned::to_owned));
    grid.share.extend([root(), target()]);
    let scratch = target().join("tmp");
    std::fs::create_dir_all(&scratch)?;
    let directory = tempfile::tempdir_in(scratch)?;
    let options = Options { program: talkative(directory.path())?, ..Options::default() };
    let lab = Lab::up_with(&grid, &options)?;

    let (program, hundred) = (isthmus().display().to_string(), root().join("tests/programs/hundred.py"));
    let mut command = lab.machine("n1.alpha")?.command("timeout");
    command.args(["180", &program, "run", "--each", "--nodes", "n1.alpha,n1.beta", "--", "python3"]);
    let output = command.arg(hundred).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // A service writes its log by a thread of its own, later than it does what it notes.
    let mut found = way(&logs(&grid.name)?);
    let noted = World::eventually("all services have noted it", SOON, || {
        found = way(&logs(&grid.name)?);
        Ok(found.is_ok())
    });
    // The error names what is missing.
    let times = found?;
    noted?;
    let at = |index: usize| &times[index].1;
    // The step, the gateway, the broker, the acceptor's agent, the relay, the preamble. Each has
    // noted it before it does what the next one notes.
    let order = [2, 5, 6, 8, 7, 9];
    ensure!(order.windows(2).all(|pair| at(pair[0]) <= at(pair[1])), "not in this order: {times:#?}");
    Ok(())
}

/// An agent goes on although nobody reads its log.
#[test]
fn a_log_that_nobody_reads_stops_no_job() -> Result<()> {
    const FULL: &str = "mkfifo -m 600 /tmp/full; sleep 600 </tmp/full & \
        ISTHMUS_LOG=trace exec \"$@\" 2>/tmp/full";
    /// Program in Python that prints how many bytes the log's pipe holds.
    const HELD: &str = "import fcntl, os, struct, termios\n\
        pipe = os.open('/tmp/full', os.O_RDONLY | os.O_NONBLOCK)\n\
        print(struct.unpack('i', fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])";
    let world = World::up("two-relays")?;
    world.stop("n1.beta", "agent")?;
    let _agent = world.serve("n1.beta", "agent", &["sh", "-c", FULL, "sh"], &World::config("agent"))?;
    world.attached("n1.alpha", "n1.beta")?;
    let hundred = root().join("tests/programs/hundred.py").display().to_string();
    let output = world.run("n1.alpha", &["--each", "--nodes", "n1.alpha,n1.beta"], &["python3", &hundred])?;
    ensure!(output.status == 0, "{}", output.whole());
    // A pipe holds 64 KiB, and lines are written whole.
    World::eventually("its log is full", SOON, || {
        let held = world.sh("n1.beta", SOON, &["python3", "-c", HELD])?;
        ensure!(held.status == 0, "{}", held.whole());
        Ok(held.stdout.trim().parse::<u32>()? > 32 << 10)
    })
}

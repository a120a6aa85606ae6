//! Jobs that are started on a terminal end with Ctrl-C and with the terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, root};

use crate::life::{GRID, NODES, SECONDS, SOON, running};

/// A command on a terminal of its own.
struct Terminal(Child);

impl Terminal {
    fn start(world: &World, words: &[&str]) -> Result<Self> {
        let program = root().join("tests/programs/terminal.py").display().to_string();
        let mut all = vec!["python3", program.as_str()];
        all.extend(words);
        let mut command = world.command("n1.alpha", Duration::from_secs(60), &all)?;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    fn does(&mut self, what: &str) -> Result<()> {
        let stdin = self.0.stdin.as_mut().context("no input")?;
        match stdin.write_all(format!("{what}\n").as_bytes()) {
            // The command has ended already, and the terminal with it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    fn end(mut self) -> Result<String> {
        let mut printed = Vec::new();
        self.0.stdout.take().context("no output")?.read_to_end(&mut printed)?;
        self.0.wait()?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }
}

fn on_a_terminal(world: &World, keys: &[&str], command: &[&str]) -> Result<String> {
    let binary = isthmus().display().to_string();
    let nodes = NODES.join(",");
    let mut words = vec![binary.as_str(), "run", "--nodes", &nodes, "--"];
    words.extend(command);
    let mut terminal = Terminal::start(world, &words)?;
    let program = command.last().copied().unwrap_or_default();
    if program == "sleep" {
        running(world)?;
    } else {
        World::eventually("the command runs", SOON, || {
            let lines = world.leftovers("n1.alpha")?;
            let runs = |line: &String| line.ends_with("trap-all") && !line.contains(" -- ");
            Ok(lines.iter().any(runs))
        })?;
    }
    let pressed = Instant::now();
    for key in keys {
        terminal.does(key)?;
        std::thread::sleep(Duration::from_millis(300));
    }
    let printed = terminal.end()?;
    world.gone(&NODES, pressed, SECONDS).with_context(|| printed.clone())?;
    Ok(printed)
}

#[test]
fn ctrl_c_and_a_closed_terminal_end_a_job() -> Result<()> {
    let world = GRID.take()?;
    for mpi in [Mpi::OpenMpi, Mpi::OpenMpi5, Mpi::Mpich] {
        let (launcher, die) = (mpi.launcher(), mpi.program("die"));
        let endless = [launcher.as_str(), "-n", "4", &die, "never", "0", "sleep"];
        for (keys, expected) in [
            (&["int"][..], "ended by SIGINT from the terminal"),
            (&["int", "int"], "ended by SIGINT from the terminal"),
            // The terminal is gone, so nothing of it is printed.
            (&["hangup"], "status"),
        ] {
            let printed = on_a_terminal(&world, keys, &endless)?;
            ensure!(
                printed.contains(expected) && !printed.contains("status 0"),
                "{mpi:?}, {keys:?}\n{printed}"
            );
        }
    }
    Ok(())
}

/// A command that takes no notice of Ctrl-C outlives one, as it would without
/// isthmus, but not two.
#[test]
fn a_second_ctrl_c_ends_what_ignores_the_first() -> Result<()> {
    let world = GRID.take()?;
    let script = world.directory.path().join("trap-all");
    std::fs::write(&script, "#!/bin/sh\ntrap '' INT TERM HUP\nwhile :; do sleep 1; done\n")?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let path = script.display().to_string();
    let printed = on_a_terminal(&world, &["int", "int"], &["sh", &path])?;
    ensure!(printed.contains("ended by SIGINT from the terminal"), "{printed}");
    Ok(())
}

//! Jobs that are started on a terminal end with Ctrl-C and with the terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, promised, root};

use crate::life::{GRID, NODES, SECONDS, SOON, running};

/// Longest time of a command, after which it is ended. It guards against hanging only.
const LASTS: Duration = Duration::from_secs(240);

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    /// What has been read so far of what the command wrote.
    written: Vec<u8>,
}

impl Terminal {
    fn start(world: &World, words: &[&str]) -> Result<Self> {
        let program = root().join("tests/programs/terminal.py").display().to_string();
        let mut all = vec!["python3", program.as_str()];
        all.extend(words);
        let mut command = world.command("n1.alpha", LASTS, &all)?;
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self { child: command.spawn()?, written: Vec::new() })
    }

    /// Waits until the command has written a text.
    fn until(&mut self, text: &str) -> Result<()> {
        let mut piece = [0; 4096];
        while !self.written().contains(text) {
            let count = self.child.stdout.as_mut().context("no output")?.read(&mut piece)?;
            ensure!(count > 0, "it has ended without {text:?}: {:?}", self.written());
            self.written.extend_from_slice(&piece[..count]);
        }
        Ok(())
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    fn does(&mut self, what: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("no input")?;
        match stdin.write_all(format!("{what}\n").as_bytes()) {
            // The command has ended already, and the terminal with it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    fn end(mut self) -> Result<String> {
        self.child.stdout.take().context("no output")?.read_to_end(&mut self.written)?;
        self.child.wait()?;
        Ok(self.written())
    }

    /// Waits until the command has ended, and checks that in time nothing of its job is left.
    /// Returns what the command has written.
    fn ends(self, world: &World, pressed: Instant) -> Result<String> {
        let printed = self.end()?;
        world.gone(&NODES, pressed, promised(SECONDS)).with_context(|| printed.clone())?;
        Ok(printed)
    }
}

/// Starts `isthmus run` on a terminal, over both nodes.
fn on_a_terminal(world: &World, command: &[&str]) -> Result<Terminal> {
    let binary = isthmus().display().to_string();
    let nodes = NODES.join(",");
    let mut words = vec![binary.as_str(), "run", "--nodes", &nodes, "--"];
    words.extend(command);
    Terminal::start(world, &words)
}

/// Waits until `isthmus run` has taken the Ctrl-C that has come to it, or has ended. The kernel
/// makes one signal of two that wait at the same time.
fn taken(world: &World) -> Result<()> {
    World::eventually("isthmus has taken the Ctrl-C", SOON, || {
        let Ok(run) = world.service("n1.alpha", "run") else { return Ok(true) };
        // SIGINT is the second bit of the mask.
        let pending = format!("grep -q '^ShdPnd:.*[2367abef]$' /proc/{run}/status");
        Ok(world.sh("n1.alpha", SOON, &["sh", "-c", &pending])?.status != 0)
    })
}

#[test]
#[ignore = "test-all"]
fn ctrl_c_and_a_closed_terminal_end_a_job() -> Result<()> {
    let world = GRID.take_alone()?;
    for mpi in [Mpi::OpenMpi, Mpi::OpenMpi5, Mpi::Mpich] {
        let (launcher, die) = (mpi.launcher(), mpi.program("die"));
        let endless = [launcher.as_str(), "-n", "4", &die, "never", "0", "sleep"];
        for (keys, expected) in [
            (&["int"][..], "cause: SIGINT from the terminal"),
            (&["int", "int"], "cause: SIGINT from the terminal"),
            // The terminal is gone, so nothing of it is printed.
            (&["hangup"], "status"),
        ] {
            let mut terminal = on_a_terminal(&world, &endless)?;
            running(&world)?;
            let pressed = Instant::now();
            for key in keys {
                taken(&world)?;
                terminal.does(key)?;
            }
            let printed = terminal.ends(&world, pressed)?;
            ensure!(
                printed.contains(expected) && !printed.contains("status 0"),
                "{mpi:?}, {keys:?}\n{printed}"
            );
        }
    }
    Ok(())
}

/// The lines that are left on a terminal after all that was written to it.
fn screen(written: &str) -> Result<Vec<String>> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut characters = written.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                ensure!(characters.next() == Some('['), "an unknown sequence in {written:?}");
                let (mut number, mut end) = (String::new(), None);
                for next in characters.by_ref() {
                    if next.is_ascii_alphabetic() {
                        end = Some(next);
                        break;
                    }
                    number.push(next);
                }
                let count = number.parse().unwrap_or(1);
                match end {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('C') => column += count,
                    Some('D') => column = column.saturating_sub(count),
                    Some('G') => column = count.saturating_sub(1),
                    Some('K') if number == "2" => rows[row].clear(),
                    Some('K') => rows[row].truncate(column),
                    Some('J') => {
                        rows[row].truncate(column);
                        rows.truncate(row + 1);
                    }
                    // Colours, and whether the cursor is seen.
                    Some('m' | 'h' | 'l') => {}
                    other => anyhow::bail!("{other:?} in {written:?}"),
                }
            }
            seen => {
                let cells = &mut rows[row];
                if cells.len() <= column {
                    cells.resize(column + 1, ' ');
                }
                cells[column] = seen;
                column += 1;
            }
        }
        if rows.len() <= row {
            rows.resize(row + 1, Vec::new());
        }
    }
    Ok(rows.into_iter().map(|cells| cells.into_iter().collect::<String>().trim_end().to_owned()).collect())
}

/// Starts a command on a terminal, and stops the other node's agent until the command has written a
/// text. The line that says what the command waits for is there only if it waits.
fn kept_waiting(world: &World, words: &[&str], text: &str) -> Result<Terminal> {
    let agent = world.service(NODES[1], "agent")?;
    world.kill(NODES[1], "-STOP", &agent)?;
    let waits = Terminal::start(world, words).and_then(|mut terminal| {
        terminal.until(text)?;
        Ok(terminal)
    });
    world.kill(NODES[1], "-CONT", &agent)?;
    waits
}

/// The program writes to the same terminal as the progress line, as soon as it runs.
#[test]
#[ignore = "test-all"]
fn the_progress_line_leaves_no_trace() -> Result<()> {
    let world = GRID.take_for(Mpi::OpenMpi5)?;
    let binary = isthmus().display().to_string();
    let nodes = NODES.join(",");
    for mpi in [Mpi::OpenMpi, Mpi::OpenMpi5, Mpi::Mpich] {
        let launcher = mpi.launcher();
        // MPICH 5 may die of a program that ends at once (docs/mpi.md).
        let program = "echo one; echo two; sleep 1";
        let run = ["run", "--nodes", &nodes, "--", &launcher, "-n", "4", "sh", "-c", program];
        let mut words = vec!["env", "TERM=xterm", &binary];
        words.extend(run);
        let written = kept_waiting(&world, &words, " to take part")?.end()?;
        let left = screen(&written)?;
        let case = format!("{mpi:?}: {left:#?}\n{written:?}");
        ensure!(left.iter().any(|row| row == "status 0"), "{case}");
        ensure!(written.contains("asking "), "{case}");
        for word in ["one", "two"] {
            ensure!(left.iter().filter(|row| *row == word).count() == 4, "{case}");
        }
        let is_progress =
            |row: &String| ["looking", "asking", "starts its"].iter().any(|word| row.contains(word));
        ensure!(!left.iter().any(is_progress), "{case}");
        ensure!(!left.first().is_none_or(String::is_empty), "an empty row before all: {case}");

        // Nothing of it where there is no terminal, or none that erases.
        let plain =
            world.run("n1.alpha", &["--nodes", &nodes], &[&launcher, "-n", "4", "sh", "-c", program])?;
        ensure!(!plain.stderr.contains("asking") && !plain.stderr.contains('\r'), "{}", plain.whole());
        words[1] = "TERM=dumb";
        let dumb = Terminal::start(&world, &words)?.end()?;
        ensure!(dumb.contains("status 0") && !dumb.contains("asking"), "{dumb:?}");
    }
    Ok(())
}

/// The status has a screen of its own. However it is ended, it leaves the screen that was there
/// before.
#[test]
fn a_status_that_is_ended_leaves_the_terminal_as_it_was() -> Result<()> {
    const ENTER: &str = "\x1b[?1049h";
    const LEAVE: &str = "\x1b[?1049l";
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let terminal = Terminal::start(&world, &["env", "TERM=xterm", &binary, "status", "--watch"])?;
        let mut process = String::new();
        World::eventually("the status is shown", SOON, || {
            process = world.service("n1.alpha", "status").unwrap_or_default();
            let caught = format!("grep -q 'SigCgt:.*[4-7c-f]...$' /proc/{process}/status");
            // The process handles SIGTERM, which is the 15th bit of the mask.
            Ok(!process.is_empty() && world.sh("n1.alpha", SOON, &["sh", "-c", &caught])?.status == 0)
        })?;
        world.kill("n1.alpha", signal, &process)?;
        let written = terminal.end()?;
        let (_, after) = written.split_once(ENTER).with_context(|| format!("{signal}: {written:?}"))?;
        ensure!(after.contains(LEAVE) && after.contains("status 0"), "{signal}: {written:?}");
    }
    Ok(())
}

/// A command that ignores Ctrl-C outlives the first one, as it would without isthmus, but not the
/// second.
#[test]
fn a_second_ctrl_c_ends_what_ignores_the_first() -> Result<()> {
    let world = GRID.take_alone()?;
    let place = |name: &str| world.directory.path().join(format!("trap-all.{name}"));
    let (ready, noted) = (place("ready"), place("noted"));
    for file in [&ready, &noted] {
        let _ = std::fs::remove_file(file);
    }
    // The command notes the first SIGINT, and goes on.
    let script = format!(
        "trap 'echo >{}' INT; trap '' TERM HUP; echo >{}; while :; do sleep 1; done",
        noted.display(),
        ready.display()
    );
    let mut terminal = on_a_terminal(&world, &["sh", "-c", &script])?;
    World::eventually("the command runs", SOON, || Ok(ready.exists()))?;
    terminal.does("int")?;
    World::eventually("the command has noted the first one", SOON, || Ok(noted.exists()))?;
    taken(&world)?;
    ensure!(world.service("n1.alpha", "run").is_ok(), "the first one has ended it: {}", terminal.end()?);
    let pressed = Instant::now();
    terminal.does("int")?;
    let printed = terminal.ends(&world, pressed)?;
    ensure!(printed.contains("cause: SIGINT from the terminal"), "{printed}");
    Ok(())
}

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

/// What is left on a terminal after all that was written to it.
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

/// The program writes to the same terminal, as soon as it runs.
#[test]
fn the_progress_line_leaves_no_trace() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    let nodes = NODES.join(",");
    for mpi in [Mpi::OpenMpi, Mpi::OpenMpi5, Mpi::Mpich] {
        let launcher = mpi.launcher();
        // MPICH 5 may die of a program that ends at once (docs/mpi.md).
        let program = "echo one; echo two; sleep 1";
        let run = ["run", "--nodes", &nodes, "--", &launcher, "-n", "4", "sh", "-c", program];
        let mut words = vec!["env", "TERM=xterm", &binary];
        words.extend(run);
        let written = Terminal::start(&world, &words)?.end()?;
        let left = screen(&written)?;
        let case = format!("{mpi:?}: {left:#?}\n{written:?}");
        ensure!(left.iter().any(|row| row == "status 0"), "{case}");
        ensure!(written.contains("asking ") && written.contains(" to take part"), "{case}");
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

/// The status on a screen of its own leaves the screen that was there before, however it
/// is ended.
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
            // It has taken SIGTERM, which is the 15th.
            Ok(!process.is_empty() && world.sh("n1.alpha", SOON, &["sh", "-c", &caught])?.status == 0)
        })?;
        world.kill("n1.alpha", signal, &process)?;
        let written = terminal.end()?;
        let (_, after) = written.split_once(ENTER).with_context(|| format!("{signal}: {written:?}"))?;
        ensure!(after.contains(LEAVE) && after.contains("status 0"), "{signal}: {written:?}");
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

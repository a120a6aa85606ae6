//! Programs that confine themselves: another root directory, another user, few system calls.
//! And those that pass the preloaded library.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Output, Shared, World, compile_program, isthmus, root};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(240);

/// Runs a command on n1.alpha, which serves, and on another node.
fn run(world: &World, other: &str, words: &[&str]) -> Result<Output> {
    let (binary, nodes) = (isthmus().display().to_string(), format!("n1.alpha,{other}"));
    let run = [binary.as_str(), "run", "--nodes", &nodes, "--each", "--"];
    world.sh("n1.alpha", LONG, &[&run[..], words].concat())
}

fn expect(output: &Output, lines: &[(String, usize)]) -> Result<()> {
    for (line, times) in lines {
        let found = output.stdout.lines().filter(|printed| printed == line).count();
        ensure!(found == *times, "{line:?} is there {found} times: {}", output.whole());
    }
    ensure!(output.status == 0, "{}", output.whole());
    Ok(())
}

/// Checks that a process with another root directory and another user keeps its agent, as its
/// children do.
fn another_root_and_user(other: &str) -> Result<()> {
    let world = GRID.take()?;
    let program = root().join("tests/programs/confined.py").display().to_string();
    let output = run(&world, other, &["/usr/bin/python3", &program])?;
    let line = |node: &str, text: &str| format!("{node}: {text}");
    expect(
        &output,
        &[
            (line("n1.alpha", "served its peer"), 3),
            (line("n1.alpha", "back: welcome"), 1),
            (line("n1.alpha", "a child: welcome"), 1),
            (line(other, "before: welcome"), 1),
            (line(other, "after: welcome"), 1),
            (line(other, "not waiting: welcome"), 1),
            (line(other, "served its peer"), 2),
        ],
    )?;
    ensure!(!output.stderr.contains("warning"), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn another_root_and_user_within_a_site() -> Result<()> {
    another_root_and_user("n2.alpha")
}

#[test]
fn another_root_and_user_between_sites() -> Result<()> {
    another_root_and_user("n1.beta")
}

/// Checks that a server which may make few system calls serves all the same.
fn few_system_calls(other: &str, kills: bool) -> Result<()> {
    let world = GRID.take()?;
    let program = compile_program("sandboxed", world.directory.path())?.display().to_string();
    let words = [program.as_str(), "7000", "kill"];
    let output = run(&world, other, if kills { &words } else { &words[..2] })?;
    expect(
        &output,
        &[("n1.alpha: served 2 bytes: hi".to_owned(), 3), (format!("{other}: got 2 bytes: re"), 3)],
    )?;
    // The server may not connect, so nothing is missing.
    ensure!(!output.stderr.contains("warning"), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn few_system_calls_within_a_site() -> Result<()> {
    few_system_calls("n2.alpha", true)
}

#[test]
fn few_system_calls_between_sites() -> Result<()> {
    few_system_calls("n1.beta", true)
}

#[test]
#[ignore = "test-all"]
fn few_system_calls_others_fail_within_a_site() -> Result<()> {
    few_system_calls("n2.alpha", false)
}

#[test]
#[ignore = "test-all"]
fn few_system_calls_others_fail_between_sites() -> Result<()> {
    few_system_calls("n1.beta", false)
}

/// Checks that a program which accepts past the library is named, and served by its agent.
fn accepts_past_the_library(other: &str) -> Result<()> {
    let world = GRID.take()?;
    let program = root().join("tests/programs/past_libc.py").display().to_string();
    let output = run(&world, other, &["/usr/bin/python3", &program, "accept"])?;
    expect(&output, &[("n1.alpha: served hi".to_owned(), 2), (format!("{other}: got welcome"), 2)])?;
    let named = |line: &str| {
        ["warning: on n1.alpha", "python3", "past the C library"].iter().all(|part| line.contains(part))
    };
    ensure!(output.stderr.lines().any(named), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn a_program_that_accepts_past_the_library_is_named_and_served_within_a_site() -> Result<()> {
    accepts_past_the_library("n2.alpha")
}

#[test]
#[ignore = "test-all"]
fn a_program_that_accepts_past_the_library_is_named_and_served_between_sites() -> Result<()> {
    accepts_past_the_library("n1.beta")
}

#[test]
fn there_is_no_io_uring_unless_a_user_wants_it() -> Result<()> {
    let world = GRID.take()?;
    let program = root().join("tests/programs/past_libc.py").display().to_string();
    let words = ["/usr/bin/python3", program.as_str(), "uring"];
    // Not every kernel has it.
    let native = world.sh("n1.alpha", LONG, &words)?;
    ensure!(native.stdout.starts_with("io_uring: "), "{}", native.whole());
    for (variable, want) in
        [("ISTHMUS_IO_URING=off", "io_uring: ENOSYS\n"), ("ISTHMUS_IO_URING=on", &native.stdout)]
    {
        let output =
            world.run("n1.alpha", &["--nodes", "n1.alpha"], &[&["env", variable][..], &words].concat())?;
        ensure!(output.status == 0 && output.stdout == want, "{variable}: {}", output.whole());
    }
    world.expect_clean()
}

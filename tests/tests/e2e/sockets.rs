//! The shim's probes (crates/shim/tests/c) across the grid: whatever an
//! ordinary program does with its sockets, it finds what it finds on one
//! cluster, raw within a site and encrypted between sites.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use isthmus_e2e::{Shared, root};

static GRID: Shared = Shared::new("four-sites");

fn compile(directory: &Path, name: &str) -> Result<()> {
    let source = root().join("crates/shim/tests/c").join(name).with_extension("c");
    let compiled =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(directory.join(name)).arg(&source).status()?;
    ensure!(compiled.success(), "{} does not compile", source.display());
    Ok(())
}

/// Runs a probe on n1.alpha against its counterpart on another node.
fn probe(name: &str, peer: &str) -> Result<()> {
    let world = GRID.take()?;
    let directory = world.directory.path();
    for program in [name, "server", "caller"] {
        compile(directory, program)?;
    }
    let script = root().join("tests/programs/probe.sh").display().to_string();
    let words = [script.as_str(), &directory.display().to_string(), peer, name];
    let output = world.run("n1.alpha", &["--quiet"], &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    ensure!(output.stdout.lines().last().is_some_and(|line| line.starts_with("1..")), "{}", output.whole());
    world.expect_clean()
}

macro_rules! cells {
    ($($(#[$ignored:meta])? $name:ident: $probe:literal with $peer:literal;)*) => {
        $(#[test]
        $(#[$ignored])?
        fn $name() -> Result<()> {
            probe($probe, $peer)
        })*
    };
}

cells! {
    blocking_connects_over_a_relay: "connect_blocking" with "n1.beta";
    #[ignore = "test-all"]
    blocking_connects_to_an_open_site: "connect_blocking" with "n1.delta";
    blocking_connects_within_a_site: "connect_blocking" with "n2.alpha";
    non_blocking_connects_over_a_relay: "connect_nonblocking" with "n1.beta";
    #[ignore = "test-all"]
    non_blocking_connects_to_an_open_site: "connect_nonblocking" with "n1.delta";
    names_over_a_relay: "names" with "n1.beta";
    names_within_a_site: "names" with "n2.alpha";
    #[ignore = "test-all"]
    many_over_a_relay: "many" with "n1.beta";
    many_within_a_site: "many" with "n2.alpha";
    threads_over_a_relay: "threads" with "n1.beta";
    #[ignore = "test-all"]
    threads_within_a_site: "threads" with "n2.alpha";
    processes_over_a_relay: "processes" with "n1.beta";
    #[ignore = "test-all"]
    processes_within_a_site: "processes" with "n2.alpha";
    descriptors_over_a_relay: "descriptors" with "n1.beta";
    #[ignore = "test-all"]
    descriptors_within_a_site: "descriptors" with "n2.alpha";
    accepts_over_a_relay: "accept" with "n1.beta";
    accepts_within_a_site: "accept" with "n2.alpha";
}

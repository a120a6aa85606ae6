//! Programs that work on one cluster work the same over every kind of pair of
//! sites. What is peculiar to one MPI is in mpis.rs.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, Shared, root};

static GRID: Shared = Shared::new("four-sites");

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(180);

/// The dial that joins two closed sites of which one has a symmetric NAT.
const RELAYED: &str = "relay";

/// Runs a program of apps/ on the nodes of two sites. Checks every word of its output, and the way
/// that joined the sites.
fn check(mpi: Mpi, program: &str, sites: [&str; 2], dial: &str) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let launcher = mpi.launcher();
    let program = mpi.program(program);
    let nodes = sites.map(|site| format!("n1.{site}")).join(",");
    let head = format!("n1.{}", sites[0]);
    let words = [launcher.as_str(), "-n", "4", &program];
    let (output, account) = world.run_reported(&head, &["--nodes", &nodes], &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    ensure!(output.stdout.contains(" No Errors"), "{}", output.whole());
    let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
    ensure!(!pairs.is_empty(), "{account:#}");
    for pair in pairs {
        ensure!(pair["dial"] == dial && pair["encrypted"] == true, "{account:#}");
    }
    world.expect_clean()
}

macro_rules! cells {
    ($($(#[$ignored:meta])? $name:ident: $mpi:ident $program:literal $a:literal - $b:literal by $dial:ident;)*) => {
        $(#[test]
        $(#[$ignored])?
        fn $name() -> Result<()> {
            check(Mpi::$mpi, $program, [$a, $b], $dial)
        })*
    };
}

cells! {
    #[ignore = "test-all"]
    openmpi_hello_between_two_nats: OpenMpi "hello" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    openmpi_hello_between_nat_and_firewall: OpenMpi "hello" "alpha" - "gamma" by RELAYED;
    #[ignore = "test-all"]
    openmpi_ring_between_two_nats: OpenMpi "ring" "alpha" - "beta" by RELAYED;
    openmpi_ring_between_nat_and_firewall: OpenMpi "ring" "alpha" - "gamma" by RELAYED;
    openmpi_alltoall_between_two_nats: OpenMpi "alltoall" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    openmpi_alltoall_between_firewall_and_nat: OpenMpi "alltoall" "gamma" - "beta" by RELAYED;
    openmpi5_hello_between_two_nats: OpenMpi5 "hello" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    openmpi5_ring_between_two_nats: OpenMpi5 "ring" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    openmpi5_alltoall_between_two_nats: OpenMpi5 "alltoall" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    openmpi5_alltoall_between_firewall_and_nat: OpenMpi5 "alltoall" "gamma" - "beta" by RELAYED;
    mpiabi_alltoall_between_two_nats: MpiAbi "alltoall" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    mpich_hello_between_two_nats: Mpich "hello" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    mpich_hello_between_nat_and_firewall: Mpich "hello" "alpha" - "gamma" by RELAYED;
    #[ignore = "test-all"]
    mpich_ring_between_two_nats: Mpich "ring" "alpha" - "beta" by RELAYED;
    mpich_ring_between_nat_and_firewall: Mpich "ring" "alpha" - "gamma" by RELAYED;
    mpich_alltoall_between_two_nats: Mpich "alltoall" "alpha" - "beta" by RELAYED;
    #[ignore = "test-all"]
    mpich_alltoall_between_firewall_and_nat: Mpich "alltoall" "gamma" - "beta" by RELAYED;
}

/// Runs a program of apps/ between a closed and an open site. Who connects decides about the way:
/// towards the open site it is direct, from there in reverse.
fn towards_open(mpi: Mpi, program: &str) -> Result<()> {
    let world = GRID.take()?;
    let launcher = mpi.launcher();
    let program = mpi.program(program);
    let words = [launcher.as_str(), "-n", "4", &program];
    let (output, account) = world.run_reported("n1.alpha", &["--nodes", "n1.alpha,n1.delta"], &words)?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
    ensure!(!pairs.is_empty(), "{account:#}");
    ensure!(pairs.iter().all(|pair| pair["dial"] == "reverse" || pair["dial"] == "direct"), "{account:#}");
    ensure!(pairs.iter().all(|pair| pair["encrypted"] == true), "{account:#}");
    world.expect_clean()
}

#[test]
fn openmpi_alltoall_between_nat_and_open() -> Result<()> {
    towards_open(Mpi::OpenMpi, "alltoall")
}

#[test]
#[ignore = "test-all"]
fn openmpi_ring_between_nat_and_open() -> Result<()> {
    towards_open(Mpi::OpenMpi, "ring")
}

#[test]
fn mpich_alltoall_between_nat_and_open() -> Result<()> {
    towards_open(Mpi::Mpich, "alltoall")
}

#[test]
#[ignore = "test-all"]
fn mpich_ring_between_nat_and_open() -> Result<()> {
    towards_open(Mpi::Mpich, "ring")
}

fn everywhere(mpi: Mpi) -> Result<()> {
    let world = GRID.take()?;
    let launcher = mpi.launcher();
    let program = mpi.program("alltoall");
    let (output, account) = world.run_reported("n2.beta", &[], &[&launcher, "-n", "6", &program])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    ensure!(account["nodes"] == 6 && account["ranks"] == 6, "{account:#}");
    world.expect_clean()
}

#[test]
fn openmpi_alltoall_over_all_sites() -> Result<()> {
    everywhere(Mpi::OpenMpi)
}

#[test]
fn mpich_alltoall_over_all_sites() -> Result<()> {
    everywhere(Mpi::Mpich)
}

/// The numbers of LAMMPS's thermodynamic output, line by line.
fn thermo(output: &str) -> Vec<Vec<f64>> {
    output
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Step"))
        .skip(1)
        .map_while(|line| line.split_whitespace().map(|word| word.parse().ok()).collect())
        .collect()
}

/// Checks that two runs of LAMMPS have computed the same.
pub(crate) fn expect_same(one: &str, other: &str) -> Result<()> {
    let (want, got) = (thermo(one), thermo(other));
    ensure!(want.len() >= 3 && want.len() == got.len(), "{one}\n{other}");
    for (want, got) in want.iter().flatten().zip(got.iter().flatten()) {
        // The order of additions is all that may differ.
        ensure!((want - got).abs() <= 1e-6 * want.abs().max(1e-3), "{want} became {got}");
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn lammps_computes_the_same_over_three_sites_as_on_one_node() -> Result<()> {
    let world = GRID.take_alone()?;
    let input = root().join("examples/lammps/melt.in").display().to_string();
    let lammps = ["mpirun.openmpi", "-n", "6", "lmp", "-log", "none", "-in", &input];
    let alone = world.sh("n1.alpha", LONG, &lammps)?;
    ensure!(alone.status == 0, "{}", alone.whole());
    let nodes = "n1.alpha,n1.beta,n1.gamma";
    let (over_sites, account) = world.run_reported("n1.alpha", &["--nodes", nodes], &lammps)?;
    ensure!(over_sites.status == 0, "{}", over_sites.whole());
    ensure!(account["sites"].as_array().map(Vec::len) == Some(3), "{account:#}");
    expect_same(&alone.stdout, &over_sites.stdout)
}

#[test]
fn a_program_reads_input_and_its_output_and_status_come_back() -> Result<()> {
    let world = GRID.take()?;
    let program = isthmus_e2e::isthmus().display().to_string();
    let script = "cat; echo problem >&2; exit 7";
    let words = [program.as_str(), "run", "--quiet", "--", "sh", "-c", script];
    let mut child = world
        .command("n1.alpha", LONG, &words)?
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    use std::io::Write as _;
    child.stdin.take().into_iter().try_for_each(|mut stdin| stdin.write_all(b"line in\n"))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(7), "{output:?}");
    ensure!(output.stdout == b"line in\n" && output.stderr == b"problem\n", "{output:?}");
    Ok(())
}

#[test]
fn rank_0_reads_standard_input() -> Result<()> {
    let world = GRID.take()?;
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let program = isthmus_e2e::isthmus().display().to_string();
        let launcher = mpi.launcher();
        let script = format!(
            "echo from afar | {program} run --quiet --nodes n1.alpha,n1.beta -- {launcher} -n 2 sh -c '[ \"${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\" = 0 ] && cat || true'"
        );
        let output = world.sh("n1.alpha", LONG, &["sh", "-c", &script])?;
        ensure!(output.status == 0 && output.stdout.contains("from afar"), "{mpi:?}: {}", output.whole());
    }
    world.expect_clean()
}

#[test]
fn ranks_of_one_node_share_memory_and_see_grid_names() -> Result<()> {
    let world = GRID.take()?;
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["mpirun.openmpi", "-n", "4", &hello];
    let (output, account) = world.run_reported("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
    for name in ["n1.alpha", "n1.beta"] {
        ensure!(output.stdout.matches(name).count() == 2, "{}", output.whole());
    }
    // Launcher daemons and ranks: nothing within a site went over the network.
    ensure!(account["connections_within_sites"] == 0, "{account:#}");
    Ok(())
}

#[test]
fn a_second_run_straight_after_works() -> Result<()> {
    let world = GRID.take()?;
    let hello = Mpi::OpenMpi.program("hello");
    for _ in 0..3 {
        let output =
            world.run("n1.alpha", &["--nodes", "alpha,beta"], &["mpirun.openmpi", "-n", "4", &hello])?;
        ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    }
    world.expect_clean()
}

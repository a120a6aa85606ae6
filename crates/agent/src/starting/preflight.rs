//! Checks of a node before a job starts there, beside its programs: their libraries,
//! the launcher's version, memory, the clock, connections to other sites. The node
//! only reports; `isthmus run` decides what is a fault.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_reach::{Purpose, ReachError};
use isthmus_rpc::enums::remedy_to_wire;
use isthmus_service::clock::micros;
use isthmus_service::clock::since_1970;
use isthmus_wire::proto;
use isthmus_wire::settings::Host;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use procfs::Current as _;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::tree;
use crate::starting::programs;
use crate::starting::supervise::handle::clean_environment;
use crate::trunks;

/// How long a launcher may take to print its version, and the loader to list
/// libraries.
const COMMAND_DEADLINE: Duration = Duration::from_secs(5);
/// How long a test connection may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);
/// Dynamic loaders of the GNU C library, by the paths that programs name. Only these
/// are run to list a program's libraries.
const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib64/ld64.so.2",
    "/lib/ld-linux-riscv64-lp64d.so.1",
];
/// Names of libraries whose version must be the same on every node.
const MPI_LIBRARIES: &[&str] = &["libmpi", "libmpich", "libmpi_abi"];

/// This machine's time, in microseconds since 1970.
pub(crate) fn clock() -> i64 {
    i64::try_from(since_1970().as_micros()).unwrap_or(i64::MAX)
}

/// Fills in the skew of clocks against this node's. The called node read its clock
/// within the round trip of the call, and has compared the clocks of the nodes below
/// with its own.
pub(crate) fn set_skews(reports: &mut [proto::NodeReport], asked: &str, asked_at: i64, round_trip: Duration) {
    let half = i64::try_from(round_trip.as_micros() / 2).unwrap_or(i64::MAX);
    let Some(own) = reports.iter().find(|report| report.node == asked) else { return };
    let skew_us = own.clock_unix_us.saturating_sub(asked_at.saturating_add(half));
    for report in reports {
        report.clock_skew_us = report.clock_skew_us.saturating_add(skew_us);
        report.clock_uncertainty_us = report.clock_uncertainty_us.saturating_add(half.unsigned_abs());
    }
}

/// Makes all checks of this node, in parallel. Returns `None` unless the request asks for them.
pub(crate) async fn report(
    node: &Arc<Node>,
    job: &Job,
    check: Option<&proto::ProgramCheck>,
    preflight: Option<&proto::Preflight>,
) -> Option<proto::NodeReport> {
    let preflight = preflight?;
    let (launcher_version, libraries, probes) = tokio::join!(
        launcher_version(check, &preflight.launcher),
        libraries(check, &preflight.library_path),
        probes(node, job)
    );
    let memory = procfs::Meminfo::current().ok();
    Some(proto::NodeReport {
        node: node.name().to_string(),
        memory_available_bytes: memory.as_ref().and_then(|memory| memory.mem_available).unwrap_or(0),
        memory_total_bytes: memory.as_ref().map_or(0, |memory| memory.mem_total),
        clock_unix_us: clock(),
        launcher_version,
        libraries,
        probes,
        ..proto::NodeReport::default()
    })
}

/// Runs a tool of the system and returns its standard output and error.
async fn output_of(
    program: &Path,
    arguments: &[&Path],
    environment: Vec<(OsString, OsString)>,
) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_DEADLINE, command.output()).await.ok()?.ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

async fn launcher_version(check: Option<&proto::ProgramCheck>, launcher: &str) -> String {
    let own_path = std::env::var("PATH").unwrap_or_default();
    let found =
        check.filter(|_| !launcher.is_empty()).and_then(|check| programs::locate(launcher, check, &own_path));
    let Some(program) = found else { return String::new() };
    let output =
        output_of(&program, &[Path::new("--version")], clean_environment()).await.unwrap_or_default();
    version(&output).unwrap_or_else(|| "unknown version".to_owned())
}

/// The name of the MPI and its version, as a launcher prints them.
fn version(output: &str) -> Option<String> {
    if let Some((_, rest)) = output.split_once("(Open MPI) ") {
        return Some(format!("Open MPI {}", rest.split_whitespace().next()?));
    }
    let line = output.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
    Some(format!("MPICH {}", line.trim()))
}

async fn libraries(check: Option<&proto::ProgramCheck>, library_path: &str) -> Vec<proto::ProgramLibraries> {
    let own_path = std::env::var("PATH").unwrap_or_default();
    let mut found = Vec::new();
    let programs: BTreeSet<&String> = check.into_iter().flat_map(|check| &check.programs).collect();
    for program in programs {
        let Some(file) = check.and_then(|check| programs::locate(program, check, &own_path)) else {
            continue;
        };
        // The loader reads $ORIGIN from the path that it is given, and execve(2) from the file.
        let file = file.canonicalize().unwrap_or(file);
        let Some(loader) = loader(&file) else { continue };
        let mut environment = clean_environment();
        // Some launchers pass the head's path on, others don't, so both count.
        let own = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let both = [own.as_str(), library_path].into_iter().filter(|path| !path.is_empty());
        environment.retain(|(name, _)| name != "LD_LIBRARY_PATH");
        environment.push(("LD_LIBRARY_PATH".into(), both.collect::<Vec<_>>().join(":").into()));
        let listing = output_of(Path::new(loader), &[Path::new("--list"), &file], environment).await;
        let (missing, mpi) = read_listing(&listing.unwrap_or_default());
        let mpi = mpi.iter().map(|path| real_name(path)).collect();
        found.push(proto::ProgramLibraries { program: program.clone(), missing, mpi });
    }
    found
}

/// The loader that a program names, if it is one of [`LOADERS`].
fn loader(program: &Path) -> Option<&'static str> {
    let cache = object::ReadCache::new(std::fs::File::open(program).ok()?);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    let named = segments.iter().find_map(|segment| segment.interpreter(endian, &cache).ok().flatten())?;
    LOADERS.iter().copied().find(|known| known.as_bytes() == named)
}

/// Reads the loader's list of a program's libraries. Returns the names of missing ones, and the
/// paths of the MPI's.
fn read_listing(listing: &str) -> (Vec<String>, Vec<String>) {
    let (mut missing, mut mpi) = (Vec::new(), Vec::new());
    for (name, place) in listing.lines().filter_map(|line| line.split_once(" => ")) {
        let (name, place) = (name.trim(), place.trim());
        if place.starts_with("not found") {
            missing.push(name.to_owned());
        } else if MPI_LIBRARIES.contains(&name.split(".so").next().unwrap_or(name)) {
            mpi.push(place.split(" (").next().unwrap_or(place).to_owned());
        }
    }
    // The loader stops at the first missing library.
    let failure = listing.split_once("error while loading shared libraries: ");
    missing.extend(failure.and_then(|(_, rest)| rest.split(':').next()).map(ToOwned::to_owned));
    missing.sort();
    missing.dedup();
    (missing, mpi)
}

/// The file name that all links of a path lead to: `libmpi.so.40` is `libmpi.so.40.30.4`.
fn real_name(path: &str) -> String {
    let real = Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Makes a test connection to another node. An answer over a trunk that stands is enough:
/// programs' connections go over it, at the latest when no other can be made.
async fn probe(node: &Arc<Node>, host: &Host) -> Result<(), ReachError> {
    let address = host.address.ip();
    if trunks::open::answers(node, &host.name, address).await {
        return Ok(());
    }
    let reaching = node.dialer().reach(address, Purpose::tls(&node.tls().grpc, Some(node.owner())));
    match tokio::time::timeout(PROBE_DEADLINE, reaching).await {
        Ok(reached) => reached.map(drop),
        Err(_) => Err(ReachError::no_way(format!("no connection within {PROBE_DEADLINE:?}"))),
    }
}

/// Makes test connections to the lead of each other site, if this node is the lead of
/// its own. The head makes none: it calls those nodes anyway.
async fn probes(node: &Arc<Node>, job: &Job) -> Vec<proto::Probe> {
    let own = node.name();
    let leads = tree::leads(&job.members.nodes);
    if tree::is_head(&job.members.nodes, own) || !leads.iter().any(|host| host.name == *own) {
        return Vec::new();
    }
    let mut probing = JoinSet::new();
    for host in leads.into_iter().filter(|host| host.name != *own).cloned() {
        let node = node.clone();
        probing.spawn(async move {
            let started = Instant::now();
            let failed = probe(&node, &host).await.err();
            let took_us = micros(started.elapsed());
            let remedy = failed.as_ref().and_then(ReachError::remedy);
            let remedy = remedy.map_or(proto::Remedy::None, remedy_to_wire).into();
            let failure = failed.map(|error| error.to_string()).unwrap_or_default();
            proto::Probe { acceptor: host.name.to_string(), took_us, failure, remedy }
        });
    }
    probing.join_all().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (output, want) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n", Some("Open MPI 4.1.4")),
            (
                "HYDRA build details:\n    Version:                                 4.0.2\n",
                Some("MPICH 4.0.2"),
            ),
            ("something else", None),
        ] {
            assert_eq!(version(output).as_deref(), want, "{output}");
        }
    }

    #[test]
    fn listings_are_read() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                       \tlibmpi.so.40 => /usr/lib/libmpi.so.40 (0x00007f)\n\
                       \tlibnone.so.1 => not found\n\
                       \tlibmpi_cxx.so.40 => /usr/lib/libmpi_cxx.so.40 (0x00007f)\n\
                       \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let (missing, mpi) = read_listing(listing);
        assert_eq!(
            (missing, mpi),
            (vec!["libnone.so.1".to_owned()], vec!["/usr/lib/libmpi.so.40".to_owned()])
        );
        let listing =
            "./app: error while loading shared libraries: libx.so.1: cannot open shared object file\n";
        assert_eq!(read_listing(listing), (vec!["libx.so.1".to_owned()], Vec::new()));
    }

    #[tokio::test]
    async fn this_test_has_all_its_libraries_and_a_script_has_none() {
        let own = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let programs = [&own, &script].map(|path| path.display().to_string());
        let check = proto::ProgramCheck { programs: programs.to_vec(), ..Default::default() };
        let found = libraries(Some(&check), "").await;
        assert_eq!(found.len(), 1);
        assert!(found[0].missing.is_empty() && found[0].mpi.is_empty(), "{found:?}");
    }

    #[test]
    fn skew_is_taken_against_the_middle_of_the_round_trip() {
        let report = |node: &str, clock_skew_us, clock_uncertainty_us| proto::NodeReport {
            node: node.to_owned(),
            clock_unix_us: 1_000_000,
            clock_skew_us,
            clock_uncertainty_us,
            ..Default::default()
        };
        let mut reports = [report("n2.beta", -200, 30), report("n1.beta", 0, 0)];
        set_skews(&mut reports, "n1.beta", 400_000, Duration::from_millis(200));
        let found = reports.map(|report| (report.clock_skew_us, report.clock_uncertainty_us));
        assert_eq!(found, [(499_800, 100_030), (500_000, 100_000)]);
    }
}

//! What the tests of the lab share.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use isthmus_lab::grid::{Host, SiteBuilder};
use isthmus_lab::{Grid, Lab, Machine, Options};

#[path = "../../../../../tests/src/promised.rs"]
mod promised;
pub(crate) use promised::promised;

/// Path of the program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_isthmus-lab");

/// How long may take what should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A lock for tests that measure: only one runs at a time, whichever test it is. `None` where labs
/// don't run.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    labs_run_here().then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether this user can run labs. Prints why not. Fails in continuous integration, where labs must
/// run.
pub(crate) fn labs_run_here() -> bool {
    static REPORT: OnceLock<serde_json::Value> = OnceLock::new();
    let report = REPORT.get_or_init(|| {
        let output = program(&["check", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    });
    if !report["labs"].is_null() {
        assert!(std::env::var_os("CI").is_none(), "labs must run in CI: {}", report["labs"]);
        eprintln!("SKIPPED: {}", report["labs"]);
    }
    report["labs"].is_null()
}

/// Path of the program under test, where the user who runs the tests can read it.
pub(crate) fn program_path() -> PathBuf {
    std::env::var_os(PROGRAM_VARIABLE).map_or_else(|| PROGRAM.into(), PathBuf::from)
}

const PROGRAM_VARIABLE: &str = "ISTHMUS_LAB_TEST_PROGRAM";

/// A user id that no account and no other test has.
pub(crate) fn ordinary_user() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    3_000_000 + std::process::id() * 64 + COUNT.fetch_add(1, Ordering::Relaxed) % 64
}

/// Copies a program so that it can be run at once. Another process makes the copy: whatever else
/// this process starts while it writes would have the copy open as well (`ETXTBSY`, execve(2)).
pub(crate) fn copy_executable(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().unwrap();
    assert!(status.success(), "{from:?} to {to:?}");
}

/// If root runs the tests, runs a module's other tests once more as an ordinary user. Tests in a
/// module `alone`, which measure, must be run by a test of that module.
pub(crate) fn rerun_as_an_ordinary_user(module: &str, skip: &[&str]) {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let user = ordinary_user();
    let directory = tempfile::Builder::new().prefix("lab-test-").tempdir_in("/tmp").unwrap();
    std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).unwrap();
    // Where the build lies need not be every user's to read.
    let copy = |from: &Path, name: &str| {
        let to = directory.path().join(name);
        copy_executable(from, &to);
        std::os::unix::fs::chown(&to, Some(user), Some(user)).unwrap();
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let lab = copy(Path::new(PROGRAM), "program");
    let mut command = Command::new(tests);
    command.uid(user).gid(user).current_dir("/").env(PROGRAM_VARIABLE, lab);
    command.env("XDG_RUNTIME_DIR", directory.path()).env("TMPDIR", directory.path()).env("HOME", "/");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    // Without this crate's name.
    let module = module.split_once("::").unwrap().1;
    command.arg(format!("{module}::"));
    command.args(["--nocapture", "--skip", "all_of_it_as_an_ordinary_user"]);
    command.args(skip.iter().flat_map(|test| ["--skip", test]));
    command.args(if module.contains("alone") { ["--test-threads", "1"] } else { ["--skip", "alone::"] });
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as an ordinary user:\n{text}");
    for line in text.lines().filter(|line| line.contains("SKIPPED")) {
        eprintln!("as an ordinary user: {line}");
    }
    let left = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: BTreeSet<_> = left.collect();
    assert_eq!(left, BTreeSet::from(["tests".into(), "program".into()]), "left in the runtime directory");
}

/// How the tests bring labs up.
pub(crate) fn options() -> Options {
    Options { program: program_path(), services: false, ..Options::default() }
}

/// A lab's name that no other test has.
pub(crate) fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // All names have one length: no name is the beginning of another name.
    format!("test-{}-{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Brings up the grid of this text under a name that no other test has.
pub(crate) fn lab(text: &str) -> Lab {
    let grid = Grid::parse(text, "test", &unique_name()).unwrap_or_else(|error| panic!("{error}"));
    Lab::up_with(&grid, &options()).unwrap_or_else(|error| panic!("{error}"))
}

/// Brings up a grid of sites and two public hosts, `hub` and `pub`.
pub(crate) fn lab_of(sites: impl IntoIterator<Item = SiteBuilder>) -> Lab {
    let grid = Grid::build(&unique_name()).host(Host::build("hub")).host(Host::build("pub"));
    let grid = sites.into_iter().fold(grid, |grid, site| grid.site(site));
    let grid = grid.grid().unwrap_or_else(|error| panic!("{error}"));
    Lab::up_with(&grid, &options()).unwrap_or_else(|error| panic!("{error}"))
}

/// A command `isthmus lab …`.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(program_path());
    command.arg("lab").args(arguments);
    command
}

/// Runs a shell line in a machine, and returns what it prints.
pub(crate) fn shell(machine: Machine<'_>, line: &str) -> String {
    printed(machine.command("sh"), line)
}

/// Runs a shell line with the rights to configure the machine's network, and returns what it
/// prints.
pub(crate) fn privileged_shell(machine: Machine<'_>, line: &str) -> String {
    printed(machine.privileged_command("sh"), line)
}

fn printed(mut shell: Command, line: &str) -> String {
    let output = shell.args(["-c", line]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until a condition holds. Fails the test with `what` if that takes too long.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "still not after {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A TCP listener of a machine, and its port.
pub(crate) fn listen(machine: Machine<'_>) -> (TcpListener, u16) {
    let listener = machine.in_network(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Connects from a machine to a port over TCP.
pub(crate) fn connect(
    machine: Machine<'_>,
    to: Ipv4Addr,
    port: u16,
    patience: Duration,
) -> std::io::Result<TcpStream> {
    machine.in_network(|| TcpStream::connect_timeout(&SocketAddr::from((to, port)), patience)).unwrap()
}

/// Connects from a machine to a listener and sends a byte each way. Returns the address that the
/// listener saw.
pub(crate) fn exchange(from: Machine<'_>, listener: &TcpListener, to: Ipv4Addr) -> SocketAddr {
    let port = listener.local_addr().unwrap().port();
    let mut near = connect(from, to, port, SOON).unwrap();
    let (mut far, seen) = listener.accept().unwrap();
    let mut byte = [0];
    near.write_all(b"a").unwrap();
    far.read_exact(&mut byte).unwrap();
    far.write_all(b"b").unwrap();
    near.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"b");
    seen
}

/// Measures `count` round trips of UDP packets between two machines, and returns their times, the
/// smallest first. A packet that the link loses is sent again.
pub(crate) fn round_trips(from: Machine<'_>, to: Machine<'_>, count: usize) -> Vec<Duration> {
    /// When a packet counts as lost: longer than any round trip of the tests.
    const LOST: Duration = Duration::from_secs(1);
    let bind = || UdpSocket::bind("0.0.0.0:0").unwrap();
    let near = from.in_network(bind).unwrap();
    let far = to.in_network(bind).unwrap();
    near.connect((to.address(), far.local_addr().unwrap().port())).unwrap();
    near.set_read_timeout(Some(LOST)).unwrap();
    far.set_read_timeout(Some(LOST / 20)).unwrap();
    let mut times = Vec::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !done.load(Ordering::SeqCst) {
                if let Ok((length, peer)) = far.recv_from(&mut buffer) {
                    far.send_to(&buffer[..length], peer).unwrap();
                }
            }
        });
        let until = Instant::now() + SOON;
        let mut number: u64 = 0;
        while times.len() < count && Instant::now() < until {
            number += 1;
            let start = Instant::now();
            near.send(&number.to_be_bytes()).unwrap();
            let mut answer = [0; 8];
            while let Ok(8) = near.recv(&mut answer) {
                if answer == number.to_be_bytes() {
                    times.push(start.elapsed());
                    break;
                }
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(times.len(), count, "answers within {SOON:?}");
    times.sort();
    times
}

/// The namespaces of a process, as the kernel names them.
pub(crate) fn namespaces(pid: i32) -> BTreeSet<String> {
    ["net", "mnt", "uts", "ipc", "pid"]
        .iter()
        .filter_map(|kind| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect()
}

/// Processes of the real machine that are in any of the namespaces.
pub(crate) fn processes_in(wanted: &BTreeSet<String>) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| !namespaces(*pid).is_disjoint(wanted)).collect()
}

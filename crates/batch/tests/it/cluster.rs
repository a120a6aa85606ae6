//! Namespaces in which a test has a cluster, and what tests of all schedulers need.

use std::ffi::OsString;
use std::future::Future;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isthmus_batch::command::Runner;
use isthmus_batch::{Batch, BatchError, Job, Pilot, Request, Secret, State, Word};

/// By this variable a test knows that it runs in namespaces of its own.
const INSIDE: &str = "ISTHMUS_BATCH_TEST";
/// A deadline against hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// What pilots must not show.
pub(crate) const TOKEN: &str = "token-of-the-pilot-5f1c9e";

/// Runs a test of this program again, in namespaces of its own, where it may start daemons: these
/// end with the test. Returns the test's directory in there, and `None` outside.
pub(crate) fn inside(test: &str, programs: &[&str]) -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os(INSIDE) {
        return Some(directory.into());
    }
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        eprintln!("SKIPPED: not installed: {missing:?}");
        return None;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: the daemons of a scheduler need root");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"])
        // A first process that waits for whatever loses its parent.
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(INSIDE, directory.path())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its namespaces");
    None
}

fn is_there(program: &str) -> bool {
    path().is_some_and(|path| std::env::split_paths(&path).any(|place| place.join(program).is_file()))
}

/// Where programs are, with those of administrators.
pub(crate) fn path() -> Option<OsString> {
    let mut places: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    places.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    std::env::join_paths(places).ok()
}

/// Runs a script of `sh` that must succeed. `$D` is the test's directory.
pub(crate) fn sh(directory: &Path, script: &str) -> String {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("sh.log")).unwrap();
    let output = Command::new("sh")
        .args(["-ec", script])
        .env("D", directory)
        .env("PATH", path().unwrap())
        .env("TZ", "UTC0")
        .stdin(Stdio::null())
        .stderr(log)
        .output()
        .unwrap();
    let said = std::fs::read_to_string(directory.join("sh.log")).unwrap();
    assert!(output.status.success(), "{script}\n{}\n{said}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Gives the namespaces a host name and an address. Without an address that isn't of the loopback,
/// getaddrinfo(3) finds none that is.
pub(crate) fn network(directory: &Path) {
    sh(
        directory,
        "hostname head
        ip link set lo up
        ip link add eth0 type veth peer name eth1
        ip addr add 10.77.0.1/24 dev eth0
        ip link set eth0 up
        printf '127.0.0.1 localhost\n10.77.0.1 head\n10.77.0.2 n2\n' >$D/hosts
        mount --bind $D/hosts /etc/hosts",
    );
}

pub(crate) fn runner(environment: &[(&str, &Path)]) -> Runner {
    // A deadline against hanging: the machine may be busy with other tests.
    let mut runner = Runner::new("alpha", PATIENCE);
    let path = ("PATH".into(), path().unwrap());
    runner.environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    runner.environment.push(path);
    runner
}

pub(crate) fn word(text: &str) -> Word {
    text.parse().unwrap()
}

pub(crate) fn request(nodes: u32, cores: u32) -> Request {
    Request { cores: NonZeroU32::new(cores), ..Request::of(NonZeroU32::new(nodes).unwrap()) }
}

pub(crate) fn pilot(name: &str, request: Request, script: &str) -> Pilot {
    let secret = Some(Secret::new(TOKEN.as_bytes().to_vec()));
    Pilot { name: word(name), request, script: script.to_owned(), secret }
}

pub(crate) fn unknown() -> Job {
    Job { id: isthmus_batch::JobId(word("4711")), name: word("never") }
}

/// Asks until the answer is there.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The state of one job.
pub(crate) async fn state(scheduler: &impl Batch, job: &Job) -> State {
    let began = Instant::now();
    let state = scheduler.states(std::slice::from_ref(job)).await.unwrap().remove(0);
    if began.elapsed() > Duration::from_secs(10) {
        println!("{}: asked for {:?}", job.name, began.elapsed());
    }
    state
}

/// Asks until a job is in a state.
pub(crate) async fn reaches(scheduler: &impl Batch, job: &Job, wanted: impl Fn(&State) -> bool) -> State {
    let mut last = None;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = state(scheduler, job).await;
        if last.as_ref() != Some(&state) {
            println!("{}: {state:?}", job.name);
        }
        if wanted(&state) {
            return state;
        }
        let gone = matches!(state, State::Ended(_));
        assert!(!gone && Instant::now() < deadline, "{}: {state:?}", job.name);
        last = Some(state);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

pub(crate) async fn ends(scheduler: &impl Batch, job: &Job) -> isthmus_batch::End {
    match reaches(scheduler, job, |state| matches!(state, State::Ended(_))).await {
        State::Ended(end) => end,
        state => panic!("{state:?}"),
    }
}

/// Nothing that others can read has the token: no argument and no environment of a process.
pub(crate) fn nobody_sees_the_token() {
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        for file in ["cmdline", "environ"] {
            let seen = std::fs::read(path.join(file)).unwrap_or_default();
            let seen = String::from_utf8_lossy(&seen);
            assert!(!seen.contains(TOKEN), "{}/{file}: {seen}", path.display());
        }
    }
}

pub(crate) fn assert_unreachable<T: std::fmt::Debug>(answer: Result<T, BatchError>) {
    let error = answer.unwrap_err();
    println!("{error}");
    assert!(error.is_unreachable() && error.to_string().contains("alpha"), "{error}");
}

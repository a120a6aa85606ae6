//! Labs come and go and leave nothing behind, and commands in them are what
//! they would be anywhere.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use isthmus_lab::Lab;
use isthmus_lab::process::ProcessId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    self, eventually, lab, labs_run_here, namespaces, processes_in, program, shell, unique_name,
};

const PLAIN: &str = r#"
    [[host]]
    name = "hub"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1" }]
"#;

/// Whether this user can have emulated links.
fn emulates() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| {
        let report = program(&["check", "--json"]).output().unwrap().stdout;
        serde_json::from_slice::<serde_json::Value>(&report).unwrap()["emulated_links"].is_null()
    })
}

/// The grid `PLAIN`, with an emulated link if this user can have one.
fn small() -> String {
    let link = if emulates() { "link = { delay = \"1 ms\" }" } else { "" };
    PLAIN.replace("nodes =", &format!("{link}\nnodes ="))
}

/// A lab brought up from a file on the command line, which ends however the test ends.
struct CommandLineLab {
    name: String,
    _file: tempfile::NamedTempFile,
}

impl CommandLineLab {
    fn up() -> Self {
        let lab = Self::prepared();
        let output = lab.start().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lab
    }

    /// Writes the lab's file, but doesn't bring it up.
    fn prepared() -> Self {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        file.write_all(small().as_bytes()).unwrap();
        Self { name: unique_name(), _file: file }
    }

    /// Starts `up --foreground`, and returns once the lab stands.
    fn foreground(&self) -> Child {
        let mut child = self.start().arg("--foreground").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ctrl-C")));
        child
    }

    fn keeper(&self) -> Pid {
        Pid::from_raw(self.status()["keeper_pid"].as_i64().unwrap() as i32)
    }

    fn down(&self) -> Output {
        program(&["down", "--lab", &self.name]).output().unwrap()
    }

    /// Processes that have something in the lab's directory open, even if it was removed. All
    /// processes of the lab have.
    fn processes(&self) -> Vec<i32> {
        let directory = self.directory();
        let holds = |pid: &i32| {
            let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
            let mut open = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            open.any(|file| file.starts_with(&directory))
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(holds).collect()
    }

    fn nothing_is_left(&self, members: &[ProcessId]) {
        assert_eq!(members.iter().filter(|member| member.is_alive()).count(), 0);
        assert_eq!(self.processes(), Vec::<i32>::new());
        assert!(!self.directory().exists());
    }

    fn soon_nothing_is_left(&self, members: &[ProcessId]) {
        eventually("no directory", || !self.directory().exists());
        eventually("no process", || {
            self.processes().is_empty() && !members.iter().any(|member| member.is_alive())
        });
    }

    fn start(&self) -> Command {
        let mut command = program(&["up", "--lab", &self.name]);
        command.arg(self._file.path());
        command
    }

    fn status(&self) -> serde_json::Value {
        let output = program(&["status", "--json", "--lab", &self.name]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// All namespaces of the lab's machines.
    fn namespaces(&self) -> BTreeSet<String> {
        let status = self.status();
        let machines = status["machines"].as_array().unwrap();
        machines.iter().flat_map(|machine| namespaces(machine["pid"].as_i64().unwrap() as i32)).collect()
    }

    /// The lab's processes. They show whether the lab has ended better than namespaces, whose
    /// numbers new ones soon have again.
    fn members(&self) -> Vec<ProcessId> {
        let pids = processes_in(&self.namespaces()).into_iter().chain([self.keeper().as_raw()]);
        let members: Vec<_> = pids.filter_map(|pid| ProcessId::of(Pid::from_raw(pid)).ok()).collect();
        assert!(members.len() > 4, "{members:?}");
        members
    }

    fn directory(&self) -> std::path::PathBuf {
        state_directory().join(&self.name)
    }
}

/// The directory that this user's labs are in.
fn state_directory() -> PathBuf {
    match nix::unistd::geteuid().is_root() {
        true => "/run/isthmus-lab".into(),
        false => Path::new(&std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("isthmus-lab"),
    }
}

impl Drop for CommandLineLab {
    fn drop(&mut self) {
        let _ = program(&["down", "--lab", &self.name]).output();
    }
}

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn up_status_down() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::up();
    let status = lab.status();
    let names: Vec<_> = status["machines"].as_array().unwrap().iter().map(|m| m["name"].clone()).collect();
    assert_eq!(names, ["wan", "hub", "router.alpha", "n1.alpha"]);
    if emulates() {
        assert_eq!(status["emulator"]["report"]["links"][0]["name"], "alpha");
    }

    let again = lab.start().output().unwrap();
    assert!(!again.status.success());
    let message = String::from_utf8_lossy(&again.stderr);
    assert!(message.contains("running already"), "{message}");

    assert_eq!(lab.namespaces().len(), 4 * 5, "four machines with five namespaces each");
    let members = lab.members();
    let down = lab.down();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    lab.nothing_is_left(&members);
    let again = lab.down();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("no lab"), "{again:?}");
    let gone = program(&["status", "--lab", &lab.name]).output().unwrap();
    assert!(!gone.status.success());
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no lab"), "{gone:?}");
}

#[test]
fn a_killed_keeper_takes_everything_along() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::up();
    let members = lab.members();
    let mut sleeper = program(&["exec", "--lab", &lab.name, "n1.alpha", "--"]);
    sleeper.args(["sh", "-c", "echo ready; exec sleep 600"]).stdout(Stdio::piped());
    let mut sleeper = sleeper.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(sleeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    kill(lab.keeper(), Signal::SIGKILL).unwrap();
    assert_eq!(sleeper.wait().unwrap().code(), Some(128 + 9));
    // The lab starts again at once: what is left of the killed lab does no harm.
    let again = lab.start().output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    eventually("no process of the first lab", || !members.iter().any(|member| member.is_alive()));
    let members = lab.members();
    kill(lab.keeper(), Signal::SIGKILL).unwrap();
    lab.soon_nothing_is_left(&members);
}

#[test]
fn a_lab_in_the_foreground_ends_with_ctrl_c() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::prepared();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut up = lab.foreground();
        let members = lab.members();
        kill(Pid::from_raw(up.id() as i32), signal).unwrap();
        assert_eq!(up.wait().unwrap().code(), Some(0), "{signal}");
        lab.nothing_is_left(&members);
    }
}

#[test]
fn a_lab_in_the_foreground_ends_with_its_owner_or_from_elsewhere() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::prepared();
    let mut up = lab.foreground();
    let members = lab.members();
    up.kill().unwrap();
    up.wait().unwrap();
    lab.soon_nothing_is_left(&members);

    let mut up = lab.foreground();
    let members = lab.members();
    assert!(lab.down().status.success());
    assert_eq!(up.wait().unwrap().code(), Some(0));
    lab.nothing_is_left(&members);

    let mut up = lab.foreground();
    let members = lab.members();
    kill(lab.keeper(), Signal::SIGKILL).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(1), "killed isn't ended");
    lab.soon_nothing_is_left(&members);
}

#[test]
fn an_interrupted_up_leaves_nothing() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::prepared();
    let mut interrupted = 0;
    // The whole takes some 100 ms: moments from the first to beyond the last.
    for milliseconds in [0, 2, 5, 10, 20, 30, 50, 70, 100, 150, 200] {
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let mut up = lab.start();
            let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(milliseconds));
            kill(Pid::from_raw(up.id() as i32), signal).unwrap();
            if up.wait().unwrap().success() {
                assert!(lab.down().status.success());
            } else {
                interrupted += 1;
            }
            // Killed in the moment between its last word and its end, it has
            // brought up a whole lab.
            if signal == Signal::SIGKILL
                && program(&["status", "--lab", &lab.name]).output().unwrap().status.success()
            {
                lab.down();
            }
            lab.soon_nothing_is_left(&[]);
        }
    }
    assert!(interrupted > 2, "{interrupted}");
}

#[test]
fn a_keeper_killed_while_it_builds_leaves_nothing() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::prepared();
    for milliseconds in [0, 5, 20, 50, 100] {
        let mut up = lab.start();
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut keeper = None;
        eventually("the keeper has its directory, or is done", || {
            keeper = lab.processes().into_iter().find(|pid| parent(*pid) == Some(up.id()));
            keeper.is_some() || up.try_wait().unwrap().is_some()
        });
        let Some(keeper) = keeper else {
            // `up` was quicker than this test.
            assert!(lab.down().status.success());
            continue;
        };
        std::thread::sleep(Duration::from_millis(milliseconds));
        // The keeper may have released its parent already.
        kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
        let output = up.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || message.contains("ended without a word"), "{output:?}");
        lab.soon_nothing_is_left(&[]);
    }
}

fn parent(pid: i32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_lab_that_nobody_can_find_ends() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::up();
    let members = lab.members();
    // The directory vanishes as when the user logs out for good.
    std::fs::remove_dir_all(lab.directory()).unwrap();
    lab.soon_nothing_is_left(&members);
}

#[test]
fn labs_do_not_mix() {
    if !labs_run_here() {
        return;
    }
    let (one, two) = (CommandLineLab::up(), CommandLineLab::up());
    assert!(one.namespaces().is_disjoint(&two.namespaces()));
    let on = |lab: &CommandLineLab, line: &str| {
        let output =
            program(&["exec", "--lab", &lab.name, "n1.alpha", "--", "sh", "-c", line]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    on(&one, "echo one > /tmp/file");
    assert_eq!(on(&two, "cat /tmp/file || echo nothing"), "nothing\n");
    let ambiguous = program(&["exec", "n1.alpha", "--", "true"]).output().unwrap();
    assert!(!ambiguous.status.success());
    assert!(String::from_utf8_lossy(&ambiguous.stderr).contains("--lab"), "{ambiguous:?}");
    assert!(one.down().status.success());
    assert_eq!(on(&two, "hostname"), "n1\n");
}

#[test]
fn labs_of_other_users_are_out_of_reach() {
    if !labs_run_here() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let lab = CommandLineLab::up();
    let keeper = lab.keeper();
    let user = common::ordinary_user();
    let directory = tempfile::Builder::new().prefix("lab-test-").tempdir_in("/tmp").unwrap();
    std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).unwrap();
    let copy = directory.path().join("program");
    common::copy_executable(&common::program_path(), &copy);
    for runtime in [directory.path(), Path::new("/run")] {
        for arguments in [vec!["status"], vec!["down"], vec!["exec", "n1.alpha", "--", "true"]] {
            let mut command = Command::new(&copy);
            command.args(["lab", arguments[0], "--lab", &lab.name]).args(&arguments[1..]);
            command.uid(user).gid(user).env("XDG_RUNTIME_DIR", runtime).current_dir("/");
            let output = command.output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
            let why = if runtime == Path::new("/run") { "belongs to user id 0" } else { "no lab" };
            assert!(message.contains(why), "{message}");
        }
    }
    assert_eq!(lab.keeper(), keeper, "untouched");
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("isthmus-lab");
    let file = directory.path().join("grid.toml");
    std::fs::write(&file, PLAIN).unwrap();
    let status = |expected: &str| {
        for arguments in [vec!["status"], vec!["up", file.to_str().unwrap()]] {
            let mut command = program(&arguments);
            let output = command.env("XDG_RUNTIME_DIR", directory.path()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
            assert!(message.contains(expected), "{message}");
        }
    };
    std::fs::create_dir(&base).unwrap();
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o755)).unwrap();
    status("others may enter it (mode 0755");
    std::fs::remove_dir(&base).unwrap();
    std::os::unix::fs::symlink("/", &base).unwrap();
    status("it is no directory");
}

#[test]
fn a_lab_ends_with_the_value_or_process_that_owns_it() {
    if !labs_run_here() {
        return;
    }
    let owned = lab(&small());
    let record = owned.record().clone();
    let members = record.machines.iter().map(|machine| machine.init);
    let members: Vec<_> = members.chain(record.emulator).chain([record.keeper]).collect();
    assert!(members.iter().all(|member| member.is_alive()));
    drop(owned);
    assert_eq!(members.iter().filter(|member| member.is_alive()).count(), 0);
}

#[test]
fn a_grid_that_cannot_be_built_leaves_nothing() {
    if !labs_run_here() {
        return;
    }
    // The kernel refuses an address on the loopback network as the next hop's.
    let grid = PLAIN.replace("[[host]]", "[wan]\nsubnet = \"224.0.0.0/24\"\n[[host]]");
    let grid = isthmus_lab::Grid::parse(&grid, "test", &unique_name()).unwrap();
    let error = Lab::up_with(&grid, &common::options()).unwrap_err().to_string();
    assert!(error.contains("ip failed"), "{error}");
    assert!(!state_directory().join(&grid.name).exists());
}

#[test]
fn a_faulty_file_is_refused_before_anything_starts() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(PLAIN.replace("nat", "nut").as_bytes()).unwrap();
    let output = program(&["up"]).arg(file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("unknown variant `nut`") && message.contains(".toml:6:"), "{message}");
}

#[test]
fn exec_is_transparent() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(&small());
    let machine = lab.machine("n1.alpha").unwrap();
    for (line, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let got = machine.command("sh").args(["-c", line]).status().unwrap();
        assert_eq!(got.code(), Some(status), "{line}");
    }
    assert_eq!(machine.command("no-such-program").stderr(Stdio::null()).status().unwrap().code(), Some(127));
    assert_eq!(machine.command("/etc/hosts").stderr(Stdio::null()).status().unwrap().code(), Some(126));

    let mut cat = machine.command("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
    let mut stdin = cat.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    assert!(cat.wait_with_output().unwrap().stdout == text);
    writer.join().unwrap();

    let mut command = machine.command("sh");
    command.args(["-c", "echo $COLOUR; pwd"]).env("COLOUR", "blue").current_dir("/usr");
    assert_eq!(command.output().unwrap().stdout, b"blue\n/usr\n");
    let name = &lab.record().grid.name;
    let options = ["exec", "--lab", name, "--env", "COLOUR=red", "--cwd", "/etc", "n1.alpha", "--"];
    let output = program(&options).args(["sh", "-c", "echo $COLOUR; pwd"]).output().unwrap();
    assert_eq!(output.stdout, b"red\n/etc\n");

    // Nothing of the lab is open in the command.
    let open = |mut command: Command| command.args(["-1", "/proc/self/fd"]).output().unwrap().stdout;
    assert_eq!(open(machine.command("ls")), open(Command::new("ls")));
    lab.down().unwrap();
}

#[test]
fn signals_reach_the_command_and_a_killed_exec_kills_it() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(&small());
    let machine = lab.machine("n1.alpha").unwrap();
    // SIGTERM, not SIGINT: a shell can't catch a signal that was ignored when it started,
    // as SIGINT is where the tests run in the background.
    let script = "trap 'exit 5' TERM; echo ready; for tick in $(seq 600); do sleep 0.05; done";
    for (signal, status) in [(Signal::SIGTERM, Some(5)), (Signal::SIGKILL, None)] {
        let mut child = machine.command("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), status);
        // No shell is left that would look the same.
        eventually("the command is gone", || {
            !shell(machine, "cat /proc/[0-9]*/cmdline 2> /dev/null || true").contains("for tick")
        });
    }
    lab.down().unwrap();
}

#[test]
fn the_end_of_its_terminal_ends_exec() {
    if !labs_run_here() {
        return;
    }
    let lab = CommandLineLab::up();
    let script = "echo ready; for tick in $(seq 600); do sleep 0.05; done";
    let exec = program(&["exec", "--lab", &lab.name, "--cwd", "/", "n1.alpha", "--", "sh", "-c", script]);
    // The command leads the terminal's session, as where a window was opened for it.
    let mut terminal = Command::new("python3")
        .args(["-c", include_str!("../../../../tests/programs/terminal.py")])
        .arg(exec.get_program())
        .args(exec.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap().trim(), "ready");
    terminal.stdin.as_mut().unwrap().write_all(b"hangup\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("status {}", 128 + libc::SIGHUP));
    terminal.wait().unwrap();
}

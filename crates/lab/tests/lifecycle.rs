//! Labs come and go and leave nothing behind, and commands in them are what
//! they would be anywhere.

// Helpers outside test functions fail the test as asserts do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{eventually, is_root, lab, namespaces, processes_in, program, shell, unique_name};
use isthmus_lab::Lab;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SMALL: &str = r#"
    [[host]]
    name = "hub"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    link = { delay = "1 ms" }
    nodes = [{ name = "n1" }]
"#;

/// A lab brought up from a file on the command line, ended however the test
/// ends.
struct CommandLineLab {
    name: String,
    _file: tempfile::NamedTempFile,
}

impl CommandLineLab {
    fn up() -> Self {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        file.write_all(SMALL.as_bytes()).unwrap();
        let lab = Self { name: unique_name(), _file: file };
        let output = lab.start().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lab
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

    /// All namespaces of its machines.
    fn namespaces(&self) -> BTreeSet<String> {
        let status = self.status();
        let machines = status["machines"].as_array().unwrap();
        machines.iter().flat_map(|machine| namespaces(machine["pid"].as_i64().unwrap() as i32)).collect()
    }

    fn directory(&self) -> std::path::PathBuf {
        Path::new("/run/isthmus-lab").join(&self.name)
    }
}

impl Drop for CommandLineLab {
    fn drop(&mut self) {
        let _ = program(&["down", "--lab", &self.name]).output();
    }
}

#[test]
fn up_status_down() {
    if !is_root() {
        return;
    }
    let lab = CommandLineLab::up();
    let status = lab.status();
    let names: Vec<_> = status["machines"].as_array().unwrap().iter().map(|m| m["name"].clone()).collect();
    assert_eq!(names, ["wan", "hub", "router.alpha", "n1.alpha"]);
    assert_eq!(status["emulator"]["report"]["links"][0]["name"], "alpha");

    let again = lab.start().output().unwrap();
    assert!(!again.status.success());
    let message = String::from_utf8_lossy(&again.stderr);
    assert!(message.contains("running already"), "{message}");

    let spaces = lab.namespaces();
    assert_eq!(spaces.len(), 4 * 5, "four machines with five namespaces each");
    let down = program(&["down", "--lab", &lab.name]).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert_eq!(processes_in(&spaces), Vec::<i32>::new());
    assert!(!lab.directory().exists());
    let gone = program(&["status", "--lab", &lab.name]).output().unwrap();
    assert!(!gone.status.success());
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no lab"), "{gone:?}");
}

#[test]
fn a_killed_keeper_takes_everything_along() {
    if !is_root() {
        return;
    }
    let lab = CommandLineLab::up();
    let spaces = lab.namespaces();
    let mut sleeper =
        program(&["exec", "--lab", &lab.name, "n1.alpha", "--", "sleep", "600"]).spawn().unwrap();
    let keeper = lab.status()["keeper_pid"].as_i64().unwrap() as i32;
    let emulator = lab.status()["emulator"]["pid"].as_i64().unwrap();
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    assert_eq!(sleeper.wait().unwrap().code(), Some(128 + 9));
    eventually("no process in the lab's namespaces", || processes_in(&spaces).is_empty());
    eventually("no emulator", || !Path::new(&format!("/proc/{emulator}")).exists());
    // What it left is recognised, and in nobody's way.
    let status = program(&["status", "--lab", &lab.name]).output().unwrap();
    assert!(!status.status.success());
    let again = lab.start().output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(lab.namespaces().is_disjoint(&spaces));
}

#[test]
fn a_lab_ends_with_the_value_or_process_that_owns_it() {
    if !is_root() {
        return;
    }
    let owned = lab(SMALL);
    let record = owned.record().clone();
    let spaces: BTreeSet<_> =
        record.machines.iter().flat_map(|machine| namespaces(machine.init.pid)).collect();
    assert!(!processes_in(&spaces).is_empty());
    drop(owned);
    assert_eq!(processes_in(&spaces), Vec::<i32>::new());
    assert!(!record.keeper.is_alive());
}

#[test]
fn a_grid_that_cannot_be_built_leaves_nothing() {
    if !is_root() {
        return;
    }
    // The kernel refuses an address on the loopback network as the next hop's.
    let grid = SMALL.replace("[[host]]", "[wan]\nsubnet = \"224.0.0.0/24\"\n[[host]]");
    let grid = isthmus_lab::Grid::parse(&grid, "test", &unique_name()).unwrap();
    let error = Lab::up_with(&grid, &common::options()).unwrap_err().to_string();
    assert!(error.contains("ip failed"), "{error}");
    assert!(!Path::new("/run/isthmus-lab").join(&grid.name).exists());
}

#[test]
fn a_faulty_file_is_refused_before_anything_starts() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(SMALL.replace("nat", "nut").as_bytes()).unwrap();
    let output = program(&["up"]).arg(file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("unknown variant `nut`") && message.contains(".toml:6:"), "{message}");
}

#[test]
fn exec_is_transparent() {
    if !is_root() {
        return;
    }
    let lab = lab(SMALL);
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
    lab.down().unwrap();
}

#[test]
fn signals_reach_the_command_and_a_killed_exec_kills_it() {
    if !is_root() {
        return;
    }
    let lab = lab(SMALL);
    let machine = lab.machine("n1.alpha").unwrap();
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    for (signal, status) in [(Signal::SIGINT, Some(5)), (Signal::SIGKILL, None)] {
        let mut child = machine.command("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), status);
        // No shell is left that would look the same.
        eventually("the command is gone", || !shell(machine, "cat /proc/[0-9]*/cmdline").contains("while :"));
    }
    lab.down().unwrap();
}

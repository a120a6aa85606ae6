//! Labs of ordinary users: what they may do there, and why there are none.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::geteuid;

use crate::common::{self, lab, labs_run_here, privileged_shell, program, program_path, shell};

const GRID: &str = r#"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1" }]
"#;

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &["hidden_parts", "somebody_elses"]);
}

fn is_ordinary() -> bool {
    !geteuid().is_root() && labs_run_here()
}

#[test]
fn a_command_is_the_users_and_has_no_rights() {
    if !is_ordinary() {
        return;
    }
    let lab = lab(GRID);
    let machine = lab.machine("n1.alpha").unwrap();
    let user = geteuid();
    assert_eq!(shell(machine, "id -u; id -g"), format!("{user}\n{}\n", nix::unistd::getegid()));
    let rights = shell(machine, "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u");
    assert_eq!(rights, "0000000000000000\n");
    assert_eq!(shell(machine, "echo $XDG_RUNTIME_DIR"), format!("/run/user/{user}\n"));
    assert_eq!(shell(machine, "stat -c '%u %a' $XDG_RUNTIME_DIR"), format!("{user} 700\n"));
    // Neither the real machine's files, nor the machine itself, nor other processes of the lab.
    for line in [
        "echo x > /etc/isthmus-lab-test",
        "echo x > /usr/isthmus-lab-test",
        "echo x > /var/lib/isthmus-lab-test",
        "umount /tmp",
        "mount -t tmpfs none /mnt",
        "hostname other",
        "ip link set eth0 down",
        "ls /proc/1/root/",
        "nsenter --target 1 --net true",
    ] {
        let output = machine.command("sh").args(["-c", line]).output().unwrap();
        assert!(!output.status.success(), "{line}: {output:?}");
    }
    assert_eq!(shell(machine, "kill -KILL 1; hostname"), "n1\n", "the first process survives");
    lab.down().unwrap();
}

#[test]
fn a_privileged_command_may_configure_the_network_and_nothing_else() {
    if !is_ordinary() {
        return;
    }
    let lab = lab(GRID);
    let router = lab.machine("router.alpha").unwrap();
    let run = |line: &str| router.privileged_command("sh").args(["-c", line]).output().unwrap();
    assert!(privileged_shell(router, "nft list ruleset").contains("masquerade"));
    let link = run("ip link set lan down && ip -br link show lan");
    assert!(String::from_utf8_lossy(&link.stdout).contains("DOWN"), "{link:?}");
    for line in
        ["mount -t tmpfs none /mnt", "hostname other", "ls /proc/1/root/", "echo x > /etc/isthmus-lab-test"]
    {
        assert!(!run(line).status.success(), "{line}");
    }
    lab.down().unwrap();
}

#[test]
fn services_may_have_any_port() {
    if !is_ordinary() {
        return;
    }
    let lab = lab(GRID);
    let machine = lab.machine("n1.alpha").unwrap();
    machine.in_network(|| std::net::TcpListener::bind("0.0.0.0:443")).unwrap().unwrap();
    lab.down().unwrap();
}

/// The result of `check` in a shell line, in which CHECK stands for the command. The line may first
/// give the ordinary user all rights in a user namespace.
fn checked(line: &str) -> serde_json::Value {
    let check = format!("{} lab check --json", program_path().display());
    let output = Command::new("sh").args(["-c", &line.replace("CHECK", &check)]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_limit_of_namespaces_is_named() {
    if !is_ordinary() {
        return;
    }
    let inside = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all CHECK";
    let report = checked(&format!("exec unshare --user --map-current-user --keep-caps sh -c '{inside}'"));
    let why = report["labs"].as_str().unwrap();
    assert!(why.contains("sudo sysctl -w user.max_user_namespaces=15000"), "{why}");
}

#[test]
fn hidden_parts_of_the_system_are_named() {
    if !geteuid().is_root() || !labs_run_here() {
        return;
    }
    let user = common::ordinary_user();
    let directory = tempfile::Builder::new().prefix("lab-test-").tempdir_in("/tmp").unwrap();
    std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).unwrap();
    let copy = directory.path().join("program");
    common::copy_executable(&program_path(), &copy);
    for (hide, what) in [
        ("mount --bind /dev/null /proc/cmdline", "cannot mount proc"),
        ("mount -t tmpfs none /sys/kernel", "cannot mount sysfs"),
    ] {
        let drop = format!("setpriv --reuid {user} --regid {user} --clear-groups");
        let line = format!("{hide} && exec {drop} {} lab check --json", copy.display());
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &line])
            .env("XDG_RUNTIME_DIR", directory.path())
            .output()
            .unwrap();
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(output.status.code(), Some(1));
        let why = report["labs"].as_str().unwrap();
        assert!(why.contains(what) && why.contains("unmask=ALL"), "{why}");
    }
}

#[test]
fn without_a_runtime_directory_there_is_one_in_tmp() {
    if !is_ordinary() {
        return;
    }
    let base = std::path::PathBuf::from(format!("/tmp/isthmus-lab-{}", geteuid()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, GRID).unwrap();
    let name = common::unique_name();
    let run = |arguments: &[&str]| {
        program(arguments).arg("--lab").arg(&name).env_remove("XDG_RUNTIME_DIR").output().unwrap()
    };
    let up = run(&["up", file.path().to_str().unwrap()]);
    assert!(up.status.success(), "{up:?}");
    assert!(base.join(&name).join("lab.json").exists());
    let down = run(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert!(!base.join(&name).exists());
}

#[test]
fn somebody_elses_directory_in_tmp_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let user = common::ordinary_user();
    let base = std::path::PathBuf::from(format!("/tmp/isthmus-lab-{user}"));
    let directory = tempfile::Builder::new().prefix("lab-test-").tempdir_in("/tmp").unwrap();
    std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).unwrap();
    let copy = directory.path().join("program");
    common::copy_executable(&program_path(), &copy);
    std::fs::create_dir(&base).unwrap();
    let mut status = Command::new(copy);
    status.args(["lab", "status"]).uid(user).gid(user).env_remove("XDG_RUNTIME_DIR").current_dir("/");
    let output = status.output();
    std::fs::remove_dir(&base).unwrap();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to user id 0"), "{output:?}");
}

#[test]
fn check_says_as_whom() {
    let output = program(&["check", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["as_root"], geteuid().is_root());
    let works = report["labs"].is_null() && report["emulated_links"].is_null();
    assert_eq!(output.status.success(), works, "{report}");
    let text = program(&["check"]).output().unwrap();
    assert_eq!(text.status.code(), output.status.code());
    assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), 2, "{text:?}");
}

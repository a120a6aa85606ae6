//! The built library in real processes, on one node: what needs no agent.
//! Connections between nodes are tested end to end, with the agent.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{Server, assert_passed, job_directory, preloaded, probe, probe_with};

const OWN: &str = "240.64.1.2";
const SETTINGS: &str = "virtual 240.64.1.2\nname n1.alpha\ninterface isth0\nblack-hole 1\n\
                        host 240.64.1.2 n1.alpha\nhost 240.64.2.1 n1.beta\n";

/// A port that nothing listens on.
const CLOSED: &str = "1";

#[test]
fn a_node_reaches_itself_by_its_virtual_address() {
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    let binary = |name| probe(directory.path(), name);
    let mut server = preloaded(binary("server"), Some(&job));
    server.arg("0.0.0.0");
    let server = Server::start(server);
    for (name, arguments) in [
        ("connect_blocking", [OWN, &server.port, CLOSED]),
        ("connect_nonblocking", ["n1.alpha", &server.port, CLOSED]),
        ("many", [OWN, &server.port, CLOSED]),
        ("limit", [OWN, &server.port, CLOSED]),
        ("names", ["N1.ALPHA", &server.port, OWN]),
    ] {
        let mut command = preloaded(binary(name), Some(&job));
        command.args(arguments);
        assert_passed(name, &server.beside(command));
    }
}

#[test]
fn the_probes_pass_without_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let binary = |name| probe(directory.path(), name);
    let mut server = Command::new(binary("server"));
    server.arg("127.0.0.1");
    let server = Server::start(server);
    for name in
        ["connect_blocking", "connect_nonblocking", "many", "threads", "processes", "descriptors", "limit"]
    {
        let mut command = Command::new(binary(name));
        command.args(["127.0.0.1", &server.port, CLOSED]);
        assert_passed(name, &server.beside(command));
    }
}

#[test]
fn without_settings_the_library_keeps_out_of_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), None);
    let binary = |name| probe(directory.path(), name);
    let mut server = preloaded(binary("server"), Some(&job));
    server.arg("127.0.0.1");
    let server = Server::start(server);
    for name in ["connect_blocking", "connect_nonblocking"] {
        let mut command = preloaded(binary(name), Some(&job));
        command.args(["127.0.0.1", &server.port, CLOSED]);
        assert_passed(name, &server.beside(command));
    }
    let name = |job| {
        let mut command = preloaded("uname", job);
        command.arg("-n");
        let output = server.beside(command);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(name(Some(job.as_path())), name(None));
}

#[test]
fn settings_that_another_user_could_write_are_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    let settings = job.join("shim.conf");
    let name = || {
        let output = preloaded("uname", Some(&job)).arg("-n").output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(name(), "n1.alpha");
    for (path, usual, open) in [(&job, 0o700, 0o777), (&job, 0o700, 0o720), (&settings, 0o600, 0o662)] {
        mode(path, open);
        assert_ne!(name(), "n1.alpha", "{} with mode {open:o}", path.display());
        mode(path, usual);
    }
    fs::rename(&settings, directory.path().join("elsewhere")).unwrap();
    symlink(directory.path().join("elsewhere"), &settings).unwrap();
    assert_ne!(name(), "n1.alpha", "a link");
    fs::rename(directory.path().join("elsewhere"), &settings).unwrap();
    if is_root() {
        for path in [&settings, &job] {
            chown(path, Some(65534), None).unwrap();
            assert_ne!(name(), "n1.alpha", "{} of another user", path.display());
            chown(path, Some(0), None).unwrap();
        }
    }
    assert_eq!(name(), "n1.alpha");
}

/// Whether this process may give files to other users.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

#[test]
fn without_an_agent_other_nodes_are_out_of_reach_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    let binary = |name| probe(directory.path(), name);
    let mut server = preloaded(binary("server"), Some(&job));
    server.arg("0.0.0.0");
    let server = Server::start(server);
    let mut command = preloaded(binary("alone"), Some(&job));
    command.args(["n1.beta", OWN]);
    assert_passed("alone", &server.beside(command));
}

#[test]
fn a_forked_child_looks_for_no_function() {
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    // Both are of the same source.
    let library = directory.path().join("loading.so");
    fs::rename(probe_with(directory.path(), "loading", &["-DLIBRARY", "-shared", "-fPIC"]), &library)
        .unwrap();
    let program = probe_with(directory.path(), "loading", &["-rdynamic"]);
    let mut command = preloaded(program, Some(&job));
    command.arg(&library);
    assert_passed("loading", &command.output().unwrap());
}

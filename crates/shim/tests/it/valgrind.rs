//! The library under valgrind's memcheck, in the probes that need no agent.
//! Where valgrind isn't installed nothing is run, but in continuous integration the
//! test fails.

use std::process::{Command, Stdio};

use crate::common::{Server, assert_passed, job_directory, preloaded, probe};

const OWN: &str = "240.64.1.2";
const SETTINGS: &str = "virtual 240.64.1.2\nname n1.alpha\ninterface isth0\nblack-hole 1\n\
                        host 240.64.1.2 n1.alpha\nhost 240.64.2.1 n1.beta\n";
const CLOSED: &str = "1";

#[test]
fn probes_are_clean_under_memcheck() {
    let there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "valgrind must be installed in CI");
        eprintln!("SKIPPED: valgrind is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    let mut server = preloaded(probe(directory.path(), "server"), Some(&job));
    server.arg("0.0.0.0");
    let server = Server::start(server);
    for (name, arguments) in [
        ("connect_blocking", [OWN, &server.port, CLOSED]),
        ("connect_nonblocking", [OWN, &server.port, CLOSED]),
        ("alone", ["n1.beta", OWN, ""]),
    ] {
        let mut command = preloaded("valgrind", Some(&job));
        command
            .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
            // The hosts' table lasts as long as the process; it is a hash map,
            // to which pointers lead into the middle ("possibly lost").
            .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
            .arg(probe(directory.path(), name))
            .args(arguments.into_iter().filter(|argument| !argument.is_empty()));
        let output = server.beside(command);
        assert_passed(name, &output);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(!complaints.contains("=="), "{name}:\n{complaints}");
    }
}

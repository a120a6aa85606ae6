//! `isthmus lab`: the program isthmus-lab takes the place of the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Stands for isthmus-lab: prints its arguments, and ends with a status of its own.
const LAB: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n";

/// A directory with the command as bin/isthmus.
fn installed() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let isthmus = directory.path().join("bin/isthmus");
    std::fs::create_dir(directory.path().join("bin")).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_isthmus"), &isthmus).unwrap();
    (directory, isthmus)
}

/// Puts the program there that stands for isthmus-lab.
fn install_lab(directory: &Path) {
    // Not the file as it was written: while another test forks, its child has that open, and nobody
    // can run it.
    std::fs::write(directory.join("text"), LAB).unwrap();
    let install = ["-D", "-m", "755", "text", "lib/isthmus/isthmus-lab"];
    assert!(Command::new("install").args(install).current_dir(directory).status().unwrap().success());
}

fn run(isthmus: &Path, words: &str) -> Output {
    let mut command = Command::new(isthmus);
    if words.starts_with("-- ") {
        // As a shell asks for completions.
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "1").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
    }
    command.args(words.split(' ')).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_lab_gets_the_arguments_and_its_status_is_the_command_s() {
    let (directory, isthmus) = installed();
    install_lab(directory.path());
    for words in [
        "lab",
        "lab --help",
        "lab up --lab a --foreground",
        "lab exec n1.alpha -- sh -c -- -V",
        "help lab up",
        "-- isthmus lab cu",
    ] {
        let output = run(&isthmus, words);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.replace(' ', "\n") + "\n", "{words}");
        assert_eq!(output.status.code(), Some(7), "{words}");
    }
}

#[test]
fn without_the_lab_s_program_isthmus_says_where_it_should_be() {
    let (directory, isthmus) = installed();
    let output = run(&isthmus, "lab up");
    let message = String::from_utf8(output.stderr).unwrap();
    let at = |place: &str| directory.path().join(place).join("isthmus-lab").display().to_string();
    for part in ["isthmus lab: the lab is a program of its own", &at("bin"), &at("lib/isthmus")] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!((output.status.code(), message.lines().count()), (Some(127), 1), "{message}");
    // What isthmus itself knows of it.
    let output = run(&isthmus, "help lab");
    assert!(output.status.success() && String::from_utf8(output.stdout).unwrap().contains("Emulate a grid"));
    let output = run(&isthmus, "-- isthmus la");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "lab");
}

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command};

use super::*;

/// A directory of notes that isn't there yet.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs");
    (directory, path)
}

fn begun(directory: &Path) -> Own {
    Own::begin_in(Some(directory.to_owned()), Kind::Run, "mpirun")
}

/// The only note in a directory.
fn only(directory: &Path) -> Note {
    let mut all = all_in(directory).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).note
}

/// How many files a directory has.
fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_note_follows_its_command() {
    let (_keep, directory) = place();
    assert!(all_in(&directory).unwrap().is_empty() && !directory.exists());
    let own = begun(&directory);
    let note = only(&directory);
    assert_eq!((note.kind, note.phase, note.program.as_str()), (Kind::Run, Phase::Starts, "mpirun"));
    assert_eq!(note.process, ProcessId::of(Pid::this()).unwrap());
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);

    own.waits_for(["alpha", "beta"].map(str::to_owned).into_iter());
    let waits = only(&directory);
    assert_eq!((waits.phase, waits.sites.join(" ").as_str()), (Phase::Waits, "alpha beta"));
    // A job that is tried again has another id, and is found by the first one, too.
    let first = own.next_job();
    assert_eq!((&note.id, &note.first_id), (&first, &first));
    let second = own.next_job();
    own.is(Phase::Runs);
    let runs = only(&directory);
    assert_ne!(first, second);
    assert_eq!((runs.phase, runs.ids()), (Phase::Runs, vec![second.as_str(), first.as_str()]));

    drop(own);
    assert!(all_in(&directory).unwrap().is_empty());
    assert_eq!(files(&directory), 0);
}

#[test]
fn a_command_runs_without_a_note() {
    let own = Own::begin_in(None, Kind::Alloc, "sh");
    let first = own.next_job();
    own.is(Phase::Runs);
    assert!(first.len() == 32 && own.next_job() != first && !own.is_cancelled());
}

#[test]
fn a_note_that_is_not_this_user_s_is_none() {
    let (_keep, directory) = place();
    let own = begun(&directory);
    let path = own.path.clone().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let planted = directory.join("planted.json");
    let make = |mode| {
        fs::write(&planted, &text).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(mode)).unwrap();
    };
    make(0o600);
    assert_eq!(all_in(&directory).unwrap().len(), 2, "as it should be");

    make(0o644);
    assert_eq!(all_in(&directory).unwrap().len(), 1, "others can read it");
    make(0o600);
    fs::OpenOptions::new().write(true).open(&planted).unwrap().set_len(LONGEST + 1).unwrap();
    assert_eq!(all_in(&directory).unwrap().len(), 1, "too long");
    fs::remove_file(&planted).unwrap();
    symlink(&path, &planted).unwrap();
    assert_eq!(all_in(&directory).unwrap().len(), 1, "a link");
    fs::remove_file(&planted).unwrap();
    nix::unistd::mkfifo(&planted, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(all_in(&directory).unwrap().len(), 1, "a pipe");
    fs::remove_file(&planted).unwrap();
    make(0o600);
    // Only root can give the file away.
    if std::os::unix::fs::chown(&planted, Some(65534), None).is_ok() {
        assert_eq!(all_in(&directory).unwrap().len(), 1, "another user's");
    }

    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let error = format!("{:#}", all_in(&directory).unwrap_err());
    assert!(error.contains("chmod go-w"), "{error}");
}

#[test]
fn a_note_of_another_process_is_none() {
    let (_keep, directory) = place();
    let own = begun(&directory);
    let path = own.path.clone().unwrap();
    let note = only(&directory);
    let later = ProcessId { started: note.process.started - 1, ..note.process };
    for (what, note, is_kept) in [
        ("another machine's", Note { machine: "elsewhere".to_owned(), ..note.clone() }, true),
        ("of an earlier process with this id", Note { process: later, ..note.clone() }, false),
    ] {
        write(&path, &note).unwrap();
        assert!(all_in(&directory).unwrap().is_empty(), "{what}");
        assert_eq!(path.exists(), is_kept, "{what}");
    }
    fs::write(&path, "{").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(all_in(&directory).unwrap().is_empty());
}

/// A process that lasts, with a note of its own.
fn lasting(directory: &Path) -> (Child, Own) {
    let child = Command::new("sleep").arg("600").spawn().unwrap();
    let process = ProcessId::of(Pid::from_raw(child.id() as i32)).unwrap();
    let own = begun(directory);
    own.change(|note| note.process = process);
    (child, own)
}

#[test]
fn a_command_is_ended_and_knows_by_whom() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (_keep, directory) = place();
        let (mut child, own) = lasting(&directory);
        let found = all_in(&directory).unwrap().remove(0);
        assert!(!own.is_cancelled() && !found.wait_ended(Duration::ZERO).unwrap());
        // It may be told twice.
        found.cancel(Signal::SIGCONT).unwrap();
        assert!(own.is_cancelled());
        found.cancel(signal).unwrap();
        assert!(found.wait_ended(Duration::from_secs(60)).unwrap());
        assert_eq!(files(&directory), 0);
        child.wait().unwrap();
        assert!(found.cancel(signal).is_err(), "it has ended");
        assert_eq!(files(&directory), 0);
    }
}

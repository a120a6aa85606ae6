use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn entry() -> Entry {
    let anna = Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap();
    Entry::refused("join", "a \"bad\" name\n\u{1b}[2J\u{202e}").by(&anna).from(Some("192.0.2.1:9"))
}

#[test]
fn a_line_has_no_control_characters() {
    let now = SystemTime::UNIX_EPOCH;
    let json = line(&entry(), Format::Json, now);
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["owner"], "anna");
    for line in [line(&entry(), Format::Text, now), json] {
        assert!(
            line.starts_with("1970-01-01T00:00:00.000Z join refused identity=\"agent n1.alpha\" owner=")
                || line.starts_with("{\"time\":\"1970-01-01T00:00:00.000Z\",\"event\":\"join\""),
            "{line}"
        );
        assert_eq!(line.find(|c: char| c.is_control() || c == '\u{202e}'), Some(line.len() - 1), "{line}");
    }
}

#[test]
fn only_a_regular_file_of_this_user_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let log = Log::new(path.clone(), Format::Text);
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(log.append("line\n").is_err(), "a FIFO without a reader");
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let error = log.append("line\n").unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    drop(reader);
    std::fs::remove_file(&path).unwrap();
    log.append("line\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "line\n");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(log.append("line\n").is_err(), "another user's");
    }
}

#[test]
fn frequent_events_are_counted_apart_for_each_node_of_a_large_grid() {
    let log = Log::new(PathBuf::new(), Format::Text);
    let (mut counts, now) = (lock(&log.frequent), Instant::now());
    for node in 0..3 * COUNTED {
        assert!(counts.pass(format!("agent n{node}.alpha"), now).0, "{node}");
    }
    let written = (0..1000).filter(|_| counts.pass("agent n1.alpha".to_owned(), now).0).count();
    assert_eq!(written, 19);
}

#[test]
fn the_file_is_its_owner_s_and_may_be_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let log = Log::new(path.clone(), Format::Text);
    log.write(&entry());
    std::fs::rename(&path, directory.path().join("audit.log.1")).unwrap();
    log.write(&entry());
    log.write(&entry());
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(log.append("x").is_err(), "no link is followed");
}

//! The built library and a real second user, on one node. The listener is on any
//! address, so the library has moved it to loopback.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::common::{job_directory, preloaded, probe};

const SETTINGS: &str = "virtual 240.64.1.2\nname n1.alpha\ninterface isth0\nblack-hole 1\n";
const RANK: u32 = 1000;
const OTHER: u32 = 65534;

/// A process that listens, and the lines that it prints. It is ended when dropped.
struct Rank(Child, Lines<BufReader<ChildStdout>>);

impl Rank {
    fn line(&mut self) -> String {
        self.1.next().unwrap().unwrap()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a client ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    AfterTheAnswer,
    AtOnce,
    Reset,
    /// The server ends the connection, and the client sends nothing.
    Silent,
}

/// Connects in the name of a user, and sends that user's id. Returns the server's answer.
fn connect(user: u32, to: &str, closing: Closing) -> String {
    let to = to.to_owned();
    // The owner of a socket is the user of the thread that makes it.
    let client = std::thread::spawn(move || {
        // SAFETY: takes no pointer.
        unsafe { libc::setfsuid(user) };
        let mut client = TcpStream::connect(&to).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        if closing != Closing::Silent {
            // The connection may be closed by now.
            let _ = client.write_all(format!("{user}\n").as_bytes());
        }
        let mut answer = String::new();
        if closing == Closing::Reset {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let len = size_of::<libc::linger>() as libc::socklen_t;
            let (fd, value) = (std::os::fd::AsRawFd::as_raw_fd(&client), (&raw const linger).cast());
            // SAFETY: `value` is readable for `len` bytes.
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
        } else if closing != Closing::AtOnce {
            // An error is a connection that was closed unread.
            let _ = client.read_to_string(&mut answer);
        }
        answer
    });
    client.join().unwrap()
}

/// Whether a connection that has ended keeps this port (`TIME_WAIT`, state 6).
fn is_kept(port: &str) -> bool {
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let all = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap());
    all.iter().flat_map(|text| text.lines()).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&"06")
    })
}

#[test]
fn another_user_is_not_accepted() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: a second user needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let job = job_directory(directory.path(), Some(SETTINGS));
    let connects = isthmus_wire::settings::CONNECTS;
    std::fs::write(job.join(isthmus_wire::settings::CONNECTS_NAME), vec![0; 8 * connects]).unwrap();
    for path in [job.clone(), job.join(isthmus_wire::settings::CONNECTS_NAME)] {
        chown(path, Some(RANK), Some(RANK)).unwrap();
    }
    std::fs::set_permissions(&job, Permissions::from_mode(0o700)).unwrap();
    for file in std::fs::read_dir(&job).unwrap() {
        chown(file.unwrap().path(), Some(RANK), Some(RANK)).unwrap();
    }
    let mut command = preloaded(probe(directory.path(), "answers"), Some(&job));
    command.uid(RANK).gid(RANK).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut rank = Rank(child, lines);
    let port = rank.line();
    // The rank has connected these itself, and closed them before it accepted.
    let mut expected = vec!["closed".to_owned(); 3];
    for address in ["127.0.0.1", "127.64.1.2", "[::1]"] {
        assert_eq!(connect(OTHER, &format!("{address}:{port}"), Closing::Silent), "", "{address}");
    }
    assert!(!is_kept(&port), "a server that is started anew gets its port");
    for address in ["127.0.0.1", "127.64.1.2", "[::1]"] {
        let to = format!("{address}:{port}");
        for closing in [Closing::AfterTheAnswer, Closing::AtOnce, Closing::Reset] {
            assert_eq!(connect(OTHER, &to, closing), "", "{to} {closing:?}");
        }
        for user in [RANK, 0] {
            assert_eq!(connect(user, &to, Closing::AfterTheAnswer), "answer\n", "{user} at {to}");
            expected.push(user.to_string());
        }
    }
    let received: Vec<String> = expected.iter().map(|_| rank.line()).collect();
    assert_eq!(received, expected);
}

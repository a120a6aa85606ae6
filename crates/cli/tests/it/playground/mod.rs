//! A grid in a directory, made and run by the commands that a person types.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The longest wait for anything.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A directory with a grid in it.
pub(crate) struct Playground {
    directory: TempDir,
    pub(crate) broker_port: u16,
}

impl Playground {
    pub(crate) fn new() -> Self {
        let broker_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { directory: tempfile::tempdir().unwrap(), broker_port }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `isthmus` with these words, in the directory.
    pub(crate) fn isthmus(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
        command.current_dir(self.directory.path()).args(words.split_whitespace());
        command.env_remove("ISTHMUS_STATE").stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `isthmus`, which must succeed. Returns its output.
    pub(crate) fn good(&self, words: &str) -> String {
        let output = self.isthmus(words);
        assert!(output.status.success(), "isthmus {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `isthmus`, which must fail with a message of one line that has `want`.
    pub(crate) fn bad(&self, words: &str, want: &str) {
        let output = self.isthmus(words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "isthmus {words}: {message}");
        assert!(message.contains(want) && message.lines().count() == 1, "isthmus {words}: {message}");
        assert!(output.stdout.is_empty());
    }

    pub(crate) fn init(&self) {
        self.good(&format!("grid init --state broker --name demo --address 127.0.0.1:{}", self.broker_port));
        let listen = format!("[broker]\nlisten = \"127.0.0.1:{}\"\n", self.broker_port);
        std::fs::write(self.path("broker/isthmus.toml"), listen).unwrap();
    }

    /// Starts a service and waits until it reports that it is ready.
    pub(crate) fn start(&self, service: &str, state: &str) -> Service {
        self.start_by(Command::new("setpriv"), service, state)
    }

    /// Starts a service by a command for setpriv(1) that has something of its own, and waits until
    /// it reports that it is ready.
    pub(crate) fn start_by(&self, mut command: Command, service: &str, state: &str) -> Service {
        let socket_path = self.path(&format!("{state}.notify"));
        let notifications = UnixDatagram::bind(&socket_path).unwrap();
        notifications.set_read_timeout(Some(SOON)).unwrap();
        // Ends with the test, whatever ends that.
        let child = command
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_isthmus"), service, "--state", state])
            .current_dir(self.directory.path())
            .env("NOTIFY_SOCKET", &socket_path)
            .stderr(std::fs::File::create(self.path(&format!("{state}.log"))).unwrap())
            .spawn()
            .unwrap();
        let service = Service { child, notifications, log: self.path(&format!("{state}.log")) };
        service.expect_notification("READY=1");
        service
    }
}

/// A running service of the grid, as a process.
pub(crate) struct Service {
    pub(crate) child: Child,
    notifications: UnixDatagram,
    pub(crate) log: PathBuf,
}

impl Service {
    pub(crate) fn expect_notification(&self, want: &str) {
        let mut buffer = [0; 200];
        let read = self.notifications.recv(&mut buffer);
        let length = read.unwrap_or_else(|error| panic!("no {want}: {error}\n{}", read_to_string(&self.log)));
        assert_eq!(String::from_utf8_lossy(&buffer[..length]).trim(), want);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Ends the service with a signal; it must end well.
    pub(crate) fn stop(mut self, signal: Signal) {
        self.signal(signal);
        self.expect_notification("STOPPING=1");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", read_to_string(&self.log));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn read_to_string(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

//! A process, distinguishable from a later one with the same id.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How often a process is looked at whether it has ended, where the kernel doesn't tell.
const LOOK: Duration = Duration::from_millis(20);

/// A process, distinguishable from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Id of the process, as the real machine sees it.
    pub pid: i32,
    /// When the process started, in clock ticks since the real machine did (proc(5), field 22 of
    /// /proc/PID/stat).
    pub started: u64,
}

impl ProcessId {
    /// The process that has the id `pid` now.
    ///
    /// # Errors
    /// There is no such process, or it is a zombie.
    pub fn of(pid: Pid) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (state, started) =
            parse_stat(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if state == 'Z' {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { pid: pid.as_raw(), started })
    }

    /// Whether the process is still there, and not a zombie.
    pub fn is_alive(self) -> bool {
        Self::of(Pid::from_raw(self.pid)).is_ok_and(|found| found == self)
    }

    /// Opens a descriptor of the process. It never stands for another process.
    ///
    /// # Errors
    /// The process has ended, descriptors run out, or the kernel has none (before Linux 5.3).
    pub fn open(self) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_open takes two numbers and makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor, and this is its only owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw as RawFd) };
        // Between the two looks the process could not change.
        if self.is_alive() { Ok(descriptor) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// As [`Self::open`], but none if the kernel has no such descriptors.
    fn try_open(self) -> io::Result<Option<OwnedFd>> {
        match self.open() {
            Ok(descriptor) => Ok(Some(descriptor)),
            // pidfd_open(2) gives EPERM only in a container whose filter doesn't know the call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the process has ended, but at most `patience`. Returns whether it has ended.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn wait_ended(self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        let descriptor = match self.try_open() {
            Ok(Some(descriptor)) => descriptor,
            // Also where descriptors run out.
            Ok(None) | Err(_) => return Ok(self.look_until_ended(deadline)),
        };
        loop {
            let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            let left = deadline.saturating_duration_since(Instant::now());
            match poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(nix::Error::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// [`Self::wait_ended`] where no descriptor of the process can be had.
    fn look_until_ended(self, deadline: Instant) -> bool {
        loop {
            if !self.is_alive() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Sends a signal to this process, and never to a later process with its id. Before Linux 5.3
    /// a process that takes the id in the few microseconds between look and signal would get it.
    ///
    /// # Errors
    /// The process has ended, or may not get this signal from here.
    pub fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(descriptor) = self.try_open()? else {
            return if self.is_alive() {
                Ok(nix::sys::signal::kill(Pid::from_raw(self.pid), signal)?)
            } else {
                Err(io::ErrorKind::NotFound.into())
            };
        };
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and a null siginfo is allowed.
        let result = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, descriptor.as_raw_fd(), signal as libc::c_int, none, 0)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// State and start time from a line of /proc/PID/stat. The command's name, in parentheses, may
/// contain anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_past_any_name() {
        let tail = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2";
        for name in ["cat", "a b", "x) R 1 (y"] {
            assert_eq!(parse_stat(&format!("17 ({name}) {tail}")), Some(('S', 4242)), "{name}");
        }
        assert_eq!(parse_stat(&format!("17 (cat) {}", tail.replacen('S', "Z", 1))), Some(('Z', 4242)));
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("17 (cat"), None);
        assert_eq!(parse_stat("17 (cat) S 1"), None);
    }

    #[test]
    fn a_process_is_told_from_a_later_one() {
        let own = ProcessId::of(Pid::this()).unwrap();
        assert!(own.is_alive());
        assert!(own.open().is_ok());
        let earlier = ProcessId { started: own.started - 1, ..own };
        assert!(!earlier.is_alive());
        assert!(earlier.open().is_err());
    }

    #[test]
    fn a_process_that_ended_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = ProcessId::of(Pid::from_raw(child.id() as i32));
        child.wait().unwrap();
        assert!(id.is_err() || !id.unwrap().is_alive());
    }

    #[test]
    fn the_end_of_a_process_is_waited_for() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = ProcessId::of(Pid::from_raw(child.id() as i32)).unwrap();
        assert!(!id.wait_ended(Duration::from_millis(1)).unwrap());
        assert!(!id.look_until_ended(Instant::now()));
        drop(child.stdin.take());
        assert!(id.wait_ended(Duration::from_secs(60)).unwrap());
        assert!(id.look_until_ended(Instant::now()));
        child.wait().unwrap();
        assert!(id.wait_ended(Duration::ZERO).unwrap());
    }
}

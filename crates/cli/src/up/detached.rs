//! A service as a process of its own, which keeps nothing of the command that starts it: its
//! descriptors, its working directory, and what a service manager has told that command.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use isthmus_service::upgrade::{Program, VARIABLE};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;

use crate::service::Service;

/// Variables by which systemd tells a service of itself. The new service isn't meant
/// (systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager").
const OF_A_MANAGER: [&str; 16] = [
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "FDSTORE",
    "MAINPID",
    "MANAGERPID",
    "MANAGERPIDFDID",
    "SYSTEMD_EXEC_PID",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
];

/// How long a service lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Until it is stopped.
    On,
    /// Until it is stopped, or the thread that has started it is gone. Schedulers that end a job by killing
    /// its process group don't find a service, which has a session of its own.
    AsLongAsItsParent,
}

/// Starts a service that writes to this log.
///
/// # Errors If the service can't be started.
pub(super) fn spawn(service: Service, directory: &Path, log: File, lasts: Lasts) -> anyhow::Result<Child> {
    let itself = Program::of_this_process().context("cannot find this program")?;
    let itself = std::path::absolute(itself.path()).context("cannot find this program")?;
    let mut command = Command::new(itself);
    command.arg(service.name()).args(service.options()).arg("--state").arg(directory);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    detach(&mut command).context("cannot leave this command's descriptors behind")?;
    if lasts == Lasts::AsLongAsItsParent {
        end_with_parent(&mut command);
    }
    command.spawn().context("cannot start the service")
}

/// Has a command get SIGTERM once this process's thread is gone.
fn end_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: only makes system calls.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            // It may have ended before the line above.
            if nix::unistd::getppid() == parent {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
    }
}

/// Has a command keep nothing of this process's surroundings.
fn detach(command: &mut Command) -> std::io::Result<()> {
    // A working directory would keep its file system from being unmounted.
    command.current_dir("/");
    for name in OF_A_MANAGER.iter().chain(&[VARIABLE]) {
        command.env_remove(name);
    }
    // Descriptors that this program has opened have the flag already; those of the caller don't.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
            // SAFETY: it is used for one call, which fails if it is closed by then.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        }
    }
    // SAFETY: only makes a system call.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(std::io::Error::from));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

    use super::*;

    #[test]
    fn a_service_keeps_nothing_of_its_caller() {
        let file = File::open("/dev/null").unwrap();
        // SAFETY: dup makes a descriptor that this is the only owner of, without the flag.
        let inherited = unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) };
        let mut command = Command::new("sh");
        command.args(["-c", "pwd; ls /proc/self/fd; env"]);
        command.env("NOTIFY_SOCKET", "/run/notify").env("LISTEN_FDS", "1").env("KEPT", "yes");
        detach(&mut command).unwrap();
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with("/\n"), "{said}");
        assert!(said.lines().any(|line| line == "KEPT=yes"), "{said}");
        assert!(!said.contains("NOTIFY_SOCKET") && !said.contains("LISTEN_FDS"), "{said}");
        let number = inherited.as_raw_fd().to_string();
        // ls itself has 3 open.
        assert!(number == "3" || !said.lines().any(|line| line == number), "{number}: {said}");
        assert!(output.status.success());
    }

    #[test]
    fn a_child_gets_sigterm_when_its_parent_is_gone() {
        use std::os::unix::process::ExitStatusExt as _;

        let start = || {
            let mut command = Command::new("sleep");
            end_with_parent(command.arg("60"));
            command.spawn().unwrap()
        };
        // The thread is the parent.
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }
}

//! Files that a user has written, and names on a command line.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long the other end of a pipe may take to write the whole file.
const PIPE_DEADLINE: Duration = Duration::from_secs(10);

/// Reads a text file of at most `limit` bytes. It may be a pipe, as of `<(command)` in a shell.
///
/// # Errors
/// If it can't be read, is no file (such as a directory or a device), is longer, or isn't UTF-8. A
/// pipe also if the other end doesn't close it within 10 s.
pub fn read(path: &Path, limit: usize) -> io::Result<String> {
    read_within(path, limit, PIPE_DEADLINE)
}

fn read_within(path: &Path, limit: usize, patience: Duration) -> io::Result<String> {
    let deadline = Instant::now() + patience;
    // With O_NONBLOCK the open of a pipe doesn't wait for its other end.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a pipe"));
    }
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    loop {
        if kind.is_fifo() {
            wait(&file, deadline)?;
        }
        let length = match file.read(&mut part) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(part.get(..length).unwrap_or_default());
        if bytes.len() > limit {
            let message = format!("it has more than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text"))
}

/// Waits until a pipe has something, or its other end has closed it.
fn wait(file: &std::fs::File, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) if left.is_zero() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody has written all of it in time"));
            }
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn said(result: io::Result<String>) -> String {
        result.map_or_else(|error| error.to_string(), |text| format!("read {text:?}"))
    }

    #[test]
    fn only_short_texts_are_read() {
        for (path, limit, want) in [
            ("/proc/self/comm", 4096, "read"),
            ("/proc/self/status", 8, "more than 8 bytes"),
            ("/proc/self/auxv", 4096, "no UTF-8 text"),
            ("/", 8, "neither a file nor a pipe"),
            ("/dev/zero", 8, "neither a file nor a pipe"),
            ("/nonexistent", 8, "No such file"),
        ] {
            let said = said(read(Path::new(path), limit));
            assert!(said.contains(want), "{path}: {said}");
        }
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (from, to) = nix::unistd::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        nix::unistd::write(&to, b"a = 1\n").unwrap();
        let patience = Duration::from_millis(1);
        assert_eq!(said(read_within(Path::new(&path), 9, patience)), "nobody has written all of it in time");
        nix::unistd::write(&to, b"b = 2\n").unwrap();
        drop(to);
        assert_eq!(said(read(Path::new(&path), 9)), r#"read "b = 2\n""#);
    }
}

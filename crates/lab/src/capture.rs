//! Packets of a line, as they pass one of its ends, in the pcap format that
//! tcpdump and Wireshark read.
//!
//! They are seen as the kernel hands them on: segments of a TCP connection may
//! be together in one packet of up to 64 KiB, and checksums may be still to be
//! filled in, as with any capture on a machine that leaves both to its
//! network card. What arrives at the end of a cut line is seen, and then
//! dropped.

mod file;
mod socket;

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::entrance;
use crate::faults::{FaultError, LineEnd};
use crate::lab::{Running, find_machine};
use file::LARGEST_PACKET;
use socket::PacketSocket;

/// Why packets can't be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The lab has no link or machine of the given name.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The given name stands for several lines, but a capture is of one line.
    #[error("{name:?} stands for {count} links, capture one of them: {known}", count = .known.len(), known = .known.join(", "))]
    Several {
        /// The given name, which stands for several lines.
        name: String,
        /// Names of the lines that the given name stands for.
        known: Vec<String>,
    },
    /// The kernel refused a packet socket at the interface.
    #[error("cannot capture at {interface} of {machine}: {cause}")]
    Socket {
        /// The machine that has the interface.
        machine: String,
        /// The interface of the machine.
        interface: String,
        /// The system's error at opening the packet socket.
        cause: io::Error,
    },
    /// The captured packets can't be written to the output.
    #[error("cannot write packets: {0}")]
    Write(io::Error),
}

/// When a capture ends: at the first limit that is reached. Without limits, it goes on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Until {
    /// The capture ends after so many packets. `None`: their number has no limit.
    pub count: Option<u64>,
    /// The capture ends after so much time. `None`: its time has no limit.
    pub time: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Captured {
    /// How many packets were written.
    pub packets: u64,
    /// How many packets the kernel dropped because they weren't fetched in time.
    pub dropped: u64,
}

/// A capture of the packets at one interface. From its start on, it misses none but those that the
/// kernel drops.
#[derive(Debug)]
pub struct Capture {
    socket: PacketSocket,
    end: LineEnd,
}

impl Running {
    /// Begins to capture at one end of the line that `target` names: a link (`SITE`, `HOST`) or a
    /// node. Packets are seen at the site's router, the host or the node. With `far` they are seen
    /// at the line's other end: a link's is the wide area's router, a node's is the router of its
    /// site.
    pub fn capture(&self, target: &str, far: bool) -> Result<Capture, CaptureError> {
        let record = self.record().map_err(FaultError::from)?;
        let lines = crate::faults::find(&record, target)?;
        let [line] = lines.as_slice() else {
            let known = lines.iter().map(|line| line.name.clone()).collect();
            return Err(CaptureError::Several { name: target.to_owned(), known });
        };
        let end = if far { &line.far } else { &line.near };
        let machine = find_machine(&record, &end.machine).map_err(FaultError::from)?;
        let failed = |cause| CaptureError::Socket {
            machine: end.machine.clone(),
            interface: end.interface.clone(),
            cause,
        };
        let opened = entrance::in_network(machine, || PacketSocket::open(&end.interface));
        Ok(Capture { socket: opened.map_err(failed)?.map_err(failed)?, end: end.clone() })
    }
}

impl Capture {
    /// The end of the line at which packets are seen.
    pub fn end(&self) -> &LineEnd {
        &self.end
    }

    /// Writes packets to `out` as soon as they come. Ends at a limit of `until`, when `stop` can be
    /// read, or when the reader of `out` has left.
    pub(crate) fn write_to(
        &self,
        out: impl Write,
        until: Until,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Captured, CaptureError> {
        let mut packets = 0;
        match self.write(out, until, stop, &mut packets) {
            Err(CaptureError::Write(error)) => {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    return Err(CaptureError::Write(error));
                }
            }
            result => result?,
        }
        Ok(Captured { packets, dropped: self.socket.dropped() })
    }

    fn write(
        &self,
        out: impl Write,
        until: Until,
        stop: Option<BorrowedFd<'_>>,
        packets: &mut u64,
    ) -> Result<(), CaptureError> {
        let deadline = until.time.map(|time| Instant::now() + time);
        let mut out = io::BufWriter::with_capacity(1 << 18, out);
        out.write_all(&file::header(self.socket.data_link())).map_err(CaptureError::Write)?;
        let mut buffer = vec![0; LARGEST_PACKET];
        let failed = |cause| CaptureError::Socket {
            machine: self.end.machine.clone(),
            interface: self.end.interface.clone(),
            cause,
        };
        loop {
            while until.count.is_none_or(|count| *packets < count) {
                let Some(seen) = self.socket.receive(&mut buffer).map_err(failed)? else { break };
                let data = &buffer[..seen.captured];
                let header = file::record(seen.time, seen.captured, seen.length);
                out.write_all(&header).and_then(|()| out.write_all(data)).map_err(CaptureError::Write)?;
                *packets += 1;
                // A busy line never comes to the end of this loop.
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) || readable(stop) {
                    break;
                }
            }
            out.flush().map_err(CaptureError::Write)?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let enough = until.count.is_some_and(|count| *packets >= count);
            if enough || left == Some(Duration::ZERO) || readable(stop) {
                return Ok(());
            }
            self.wait(left, stop).map_err(failed)?;
        }
    }

    fn wait(&self, left: Option<Duration>, stop: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut polled = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        polled.extend(stop.map(|stop| PollFd::new(stop, PollFlags::POLLIN)));
        let patience = match left {
            // Rounded up: what is waited for is the time after it.
            Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        match poll(&mut polled, patience) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn readable(stop: Option<BorrowedFd<'_>>) -> bool {
    let Some(stop) = stop else { return false };
    let mut polled = [PollFd::new(stop, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

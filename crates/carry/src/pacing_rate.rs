//! How fast the kernel sends over a connection at most.

use std::io;
use std::os::fd::AsFd;

use nix::libc;

use crate::socket_option;

/// Bounds the rate at which TCP sends, whatever its congestion control (`SO_MAX_PACING_RATE`,
/// socket(7)). The kernel paces by itself, so no queueing discipline is needed. `None` ends the
/// bound.
///
/// # Errors If it is no socket.
pub(crate) fn set_most(socket: &impl AsFd, bytes_per_second: Option<u64>) -> io::Result<()> {
    // The kernel reads an `unsigned long`, all bits of which mean that there is no bound.
    let most = bytes_per_second.map_or(libc::c_ulong::MAX, |most| most.max(1) as libc::c_ulong);
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &most.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Tests that measure: they run one at a time.
    mod alone {
        use std::time::{Duration, Instant};

        use super::*;

        /// Bytes per second.
        const MOST: u64 = 4_000_000;
        /// As many bytes as may be sent in a second.
        const SENT: usize = 4_000_000;

        #[test]
        fn a_connection_sends_no_faster() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            set_most(&near, Some(MOST)).unwrap();
            let sending = std::thread::spawn(move || {
                near.write_all(&vec![0; SENT]).unwrap();
                near
            });
            let begun = Instant::now();
            far.read_exact(&mut vec![0; SENT]).unwrap();
            // The kernel doesn't pace the first ten segments, which are long over loopback.
            assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
            set_most(&sending.join().unwrap(), None).unwrap();
        }
    }

    #[test]
    fn a_file_is_no_socket() {
        assert!(set_most(&std::fs::File::open("/dev/null").unwrap(), None).is_err());
    }
}

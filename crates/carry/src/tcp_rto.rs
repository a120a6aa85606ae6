//! How soon TCP sends lost segments again.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::socket_option;

/// The socket option's number, as in linux/tcp.h since Linux 6.15.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// Sets the shortest retransmission timeout of a connection.
///
/// # Errors If the kernel is older than Linux 6.15 (`ENOPROTOOPT`), or doesn't take this time.
pub(crate) fn set_least(socket: &impl AsFd, time: Duration) -> io::Result<()> {
    let microseconds = libc::c_int::try_from(time.as_micros()).map_err(|_| Errno::EINVAL)?;
    socket_option::set(socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US, &microseconds.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::TcpInfo;

    /// Tests that measure: they run one at a time.
    mod alone {
        use super::*;

        #[test]
        fn the_timeout_is_that_much_longer_than_a_round_trip() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            match set_least(&near, Duration::from_millis(20)) {
                Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                    eprintln!("skipped: this kernel is older than Linux 6.15");
                    return;
                }
                done => done.unwrap(),
            }
            // It comes down by a part in each round trip.
            for _ in 0..50 {
                near.write_all(b"it").unwrap();
                far.read_exact(&mut [0; 2]).unwrap();
                far.write_all(b"it").unwrap();
                near.read_exact(&mut [0; 2]).unwrap();
            }
            let info = TcpInfo::of(&near).unwrap();
            let timeout = info.retransmission_timeout;
            assert!(timeout >= Duration::from_millis(20) && timeout < Duration::from_millis(200), "{info:?}");
            assert!(set_least(&near, Duration::MAX).is_err());
        }
    }
}

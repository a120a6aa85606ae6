//! Signs of life on connections that leave a site: TCP keepalives, and limits of silence.
//!
//! The kernel sends none while data isn't acknowledged, so they never end a connection
//! sooner than TCP's own patience would.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use isthmus_wire::keepalive::{INTERVAL_SECONDS, PROBES};
use socket2::{SockRef, TcpKeepalive};

const INTERVAL: Duration = Duration::from_secs(INTERVAL_SECONDS as u64);
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(INTERVAL).with_interval(INTERVAL).with_retries(PROBES);

/// Has the kernel send signs of life on a connection while it is idle.
///
/// # Errors
/// If the connection has no TCP socket.
pub fn set(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE)
}

/// How long a service's connection to another service may wait for the other kernel to acknowledge
/// what was sent. The other service may be slow, but its kernel isn't. Two retransmissions may be
/// lost on a way of 1 s.
const UNACKNOWLEDGED: Duration = Duration::from_secs(8);

/// Has the kernel end a connection whose way is dead, sooner than TCP's own patience would. A NAT
/// may have forgotten the connection, and another works at once.
pub fn bound_silence(socket: &impl AsFd) {
    // Without it pings find that out later.
    let _ = SockRef::from(socket).set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_idle_connection_shows_life_four_times_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 127);
        assert!(set(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}

//! Listening for connections that come in bursts.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted; the kernel allows no more than
/// `net.core.somaxconn`, 4,096 since Linux 5.4. A large job makes all of its
/// connections at once, and one that finds the queue full is tried again by the
/// kernel only after a second, then after two more, then four.
const BACKLOG: u32 = 4096;

/// Listens on an address.
///
/// # Errors
/// As `bind(2)`.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None of them is accepted meanwhile, and none is tried a second time.
    #[tokio::test]
    async fn a_burst_of_connections_finds_room() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = most.trim().parse::<usize>().unwrap().min(400);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut connected = Vec::new();
        for _ in 0..burst {
            let connecting = tokio::net::TcpStream::connect(address);
            let deadline = std::time::Duration::from_secs(20);
            connected.push(tokio::time::timeout(deadline, connecting).await.expect("no room").unwrap());
        }
        for _ in 0..burst {
            listener.accept().await.unwrap();
        }
    }
}

//! Single TCP segments, sent past the kernel's TCP, and what comes back.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use etherparse::{Ipv4Slice, TcpHeader, TcpHeaderSlice};
use socket2::{Domain, Protocol, Socket, Type};

use crate::lab::Machine;

/// A TCP segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// SYN without ACK, which asks for a connection.
    Syn,
    /// ACK without SYN, as if it belonged to a connection.
    Ack,
}

/// What came back for a packet that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A listener answered with SYN and ACK; for UDP, the datagram arrived.
    Accepted,
    /// A TCP reset came back.
    Reset,
    /// Nothing came back in time.
    Dropped,
}

const SEQUENCE: u32 = 0x1357_9bdf;

/// Sends a segment from a port of a machine, and waits at most `patience` for the answer.
pub fn answer(
    from: Machine<'_>,
    port: u16,
    to: SocketAddrV4,
    segment: Segment,
    patience: Duration,
) -> io::Result<Answer> {
    let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP));
    let mut socket = from.in_network(raw)??;
    socket.send_to(&bytes(from.address(), port, to, segment)?, &to.into())?;
    let deadline = Instant::now() + patience;
    let mut buffer = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Answer::Dropped);
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(answer) = read(&buffer[..length], to, port) {
            return Ok(answer);
        }
    }
}

fn bytes(from: Ipv4Addr, port: u16, to: SocketAddrV4, segment: Segment) -> io::Result<Vec<u8>> {
    let mut header = TcpHeader::new(port, to.port(), SEQUENCE, 64_240);
    match segment {
        Segment::Syn => header.syn = true,
        Segment::Ack => {
            header.ack = true;
            header.acknowledgment_number = SEQUENCE;
        }
    }
    header.checksum = header
        .calc_checksum_ipv4_raw(from.octets(), to.ip().octets(), &[])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut bytes = Vec::with_capacity(header.header_len());
    header.write(&mut bytes)?;
    Ok(bytes)
}

/// The answer that an IPv4 packet is. `None` if it comes from another endpoint than `asked`, or is
/// no answer.
fn read(packet: &[u8], asked: SocketAddrV4, port: u16) -> Option<Answer> {
    let packet = Ipv4Slice::from_slice(packet).ok()?;
    let tcp = TcpHeaderSlice::from_slice(packet.payload().payload).ok()?;
    let from = SocketAddrV4::new(packet.header().source_addr(), tcp.source_port());
    if from != asked || tcp.destination_port() != port {
        return None;
    }
    match (tcp.rst(), tcp.syn() && tcp.ack()) {
        (true, _) => Some(Answer::Reset),
        (false, true) => Some(Answer::Accepted),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn answers_are_told_from_other_traffic() {
        let asked = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80);
        let packet = |from: u8, port, change: fn(TcpHeader) -> TcpHeader| {
            let builder = PacketBuilder::ipv4([10, 0, 0, from], [10, 0, 0, 9], 64);
            let builder = builder.tcp_header(change(TcpHeader::new(port, 4000, 1, 0)));
            let mut bytes = Vec::new();
            builder.write(&mut bytes, &[]).unwrap();
            bytes
        };
        let reset: fn(TcpHeader) -> TcpHeader = |header| TcpHeader { rst: true, ack: true, ..header };
        let accepted: fn(TcpHeader) -> TcpHeader = |header| TcpHeader { syn: true, ack: true, ..header };
        for (packet, answer) in [
            (packet(1, 80, reset), Some(Answer::Reset)),
            (packet(1, 80, accepted), Some(Answer::Accepted)),
            (packet(1, 80, |header| TcpHeader { ack: true, ..header }), None),
            (packet(2, 80, reset), None),
            (packet(1, 81, reset), None),
        ] {
            assert_eq!(read(&packet, asked, 4000), answer);
        }
        assert_eq!(read(&[], asked, 4000), None);
        assert_eq!(read(&[0x45; 19], asked, 4000), None);
    }

    proptest::proptest! {
        #[test]
        fn no_packet_is_too_odd_to_read(mut packet: Vec<u8>) {
            let asked = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80);
            read(&packet, asked, 4000);
            // Most are taken for IPv4, of TCP.
            if let Some(version) = packet.first_mut() {
                *version = 0x45;
            }
            if let Some(protocol) = packet.get_mut(9) {
                *protocol = 6;
            }
            read(&packet, asked, 4000);
        }
    }
}

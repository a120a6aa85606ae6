//! The first segment of a TCP connection (RFC 9293 section 3.5), in one IPv4 packet
//! (RFC 791).
//!
//! A packet with IP options or data is refused. Unknown TCP options are dropped.

mod options;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddrV4};

pub use options::Options;

/// Length in bytes of an IPv4 header and of a TCP header, both without options.
const HEADER: usize = 20;
/// Length in bytes of the longest packet that [`Syn::to_bytes`] makes.
pub const MAX_LEN: usize = 60;

const TCP: u8 = 6;
const DONT_FRAGMENT: u16 = 0x4000;
/// Bits of the flag "more fragments" and of the fragment's offset.
const FRAGMENT: u16 = 0x3fff;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
/// The time to live that Linux gives packets by default.
const TIME_TO_LIVE: u8 = 64;

/// A SYN, as the fields that begin a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syn {
    /// The address of the initiator, which sends the SYN.
    pub source: SocketAddrV4,
    /// The address of the acceptor, which the SYN is for.
    pub destination: SocketAddrV4,
    /// The initiator's initial sequence number.
    pub sequence: u32,
    /// The initiator's window in bytes, which is never scaled in a SYN.
    pub window: u16,
    /// The TCP options that are carried.
    pub options: Options,
}

/// Why a packet isn't a SYN that can be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotASyn {
    /// The packet, which has this many bytes, is shorter than the lengths in its headers.
    #[error("cut off after {0} bytes")]
    Short(usize),
    /// The packet is this many bytes longer than its headers: it has data, or is longer than they
    /// say.
    #[error("{0} bytes more than its headers")]
    Long(usize),
    /// The packet, whose first byte this is, isn't IPv4 or has IP options.
    #[error("no IPv4 packet without options: its first byte is {0:#04x}")]
    NotIpv4(u8),
    /// The packet is a fragment of a larger packet.
    #[error("a fragment")]
    Fragment,
    /// The packet's protocol, which has this number, isn't TCP.
    #[error("protocol {0}, not TCP")]
    NotTcp(u8),
    /// The segment has these flags, and not SYN alone.
    #[error("a segment with flags {0:#04x}, not SYN alone")]
    Flags(u8),
    /// The source's or destination's port is 0.
    #[error("port 0")]
    Port,
    /// The TCP option of this kind is longer than the header, or has a wrong length.
    #[error("bad option of kind {0}")]
    Option(u8),
}

impl Syn {
    /// Reads a packet that begins with its IP header. The TCP checksum isn't verified: where the
    /// network card computes it, a captured packet doesn't have it yet.
    ///
    /// # Errors
    /// [`NotASyn`] if the packet isn't a SYN that can be carried.
    pub fn parse(packet: &[u8]) -> Result<Self, NotASyn> {
        let short = || NotASyn::Short(packet.len());
        let (ip, rest) = packet.split_first_chunk::<HEADER>().ok_or_else(short)?;
        let [version_length, _, l0, l1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
            *ip;
        if version_length != 0x45 {
            return Err(NotASyn::NotIpv4(version_length));
        }
        if protocol != TCP {
            return Err(NotASyn::NotTcp(protocol));
        }
        if u16::from_be_bytes([f0, f1]) & FRAGMENT != 0 {
            return Err(NotASyn::Fragment);
        }
        let total = usize::from(u16::from_be_bytes([l0, l1]));
        if total > packet.len() {
            return Err(short());
        }
        if total < packet.len() {
            return Err(NotASyn::Long(packet.len() - total));
        }
        let (tcp, rest) = rest.split_first_chunk::<HEADER>().ok_or_else(short)?;
        let [sp0, sp1, dp0, dp1, q0, q1, q2, q3, _, _, _, _, offset, flags, w0, w1, _, _, _, _] = *tcp;
        if flags & (FIN | SYN | RST | PSH | ACK | URG) != SYN {
            return Err(NotASyn::Flags(flags));
        }
        let options = (usize::from(offset >> 4) * 4).checked_sub(HEADER).ok_or_else(short)?;
        if options > rest.len() {
            return Err(short());
        }
        if options < rest.len() {
            return Err(NotASyn::Long(rest.len() - options));
        }
        let (source_port, destination_port) =
            (u16::from_be_bytes([sp0, sp1]), u16::from_be_bytes([dp0, dp1]));
        if source_port == 0 || destination_port == 0 {
            return Err(NotASyn::Port);
        }
        Ok(Self {
            source: SocketAddrV4::new(Ipv4Addr::new(s0, s1, s2, s3), source_port),
            destination: SocketAddrV4::new(Ipv4Addr::new(d0, d1, d2, d3), destination_port),
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
            window: u16::from_be_bytes([w0, w1]),
            options: Options::parse(rest)?,
        })
    }

    /// This SYN from another address, as a NAT translates it.
    #[must_use]
    pub fn translated(self, source: SocketAddrV4) -> Self {
        Self { source, ..self }
    }

    /// The whole packet with its checksums, at most [`MAX_LEN`] bytes long. It does
    /// not ask for explicit congestion notification.
    pub fn to_bytes(self) -> Vec<u8> {
        let options = self.options.to_bytes();
        // The lengths are at most 60 and 40 bytes, which fit.
        let tcp_length = (HEADER + options.len()) as u16;
        let total = HEADER as u16 + tcp_length;
        let mut packet = Vec::with_capacity(MAX_LEN);
        packet.extend([0x45, 0]);
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(DONT_FRAGMENT.to_be_bytes());
        packet.extend([TIME_TO_LIVE, TCP, 0, 0]);
        packet.extend(self.source.ip().octets());
        packet.extend(self.destination.ip().octets());
        let header_sum = checksum(&packet);
        packet.splice(10..12, header_sum);
        packet.extend(self.source.port().to_be_bytes());
        packet.extend(self.destination.port().to_be_bytes());
        packet.extend(self.sequence.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend([(tcp_length / 4 * 16) as u8, SYN]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(options);
        // The pseudo-header of RFC 9293 section 3.1, then the segment.
        let mut summed = Vec::with_capacity(MAX_LEN);
        summed.extend(self.source.ip().octets());
        summed.extend(self.destination.ip().octets());
        summed.extend([0, TCP]);
        summed.extend(tcp_length.to_be_bytes());
        summed.extend(packet.iter().skip(HEADER));
        packet.splice(HEADER + 16..HEADER + 18, checksum(&summed));
        packet
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let (words, _) = bytes.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

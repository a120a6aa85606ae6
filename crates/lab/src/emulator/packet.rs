//! Packets as a TUN device with offload gives and takes them: a virtio-net
//! header (10 bytes; struct virtio_net_hdr, OASIS virtio 1.2 section 5.1.6),
//! then an IP packet, which may be a TCP super-packet of many segments.

use std::ops::Range;

/// Length in bytes of the virtio-net header in front of every packet.
pub const HEADER: usize = 10;

/// Length in bytes of the largest frame: the header and a full super-packet.
pub(crate) const LARGEST_FRAME: usize = HEADER + 65_535;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
/// Flag in the virtio-net header's type byte: the connection uses ECN.
const GSO_ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const PROTOCOL_TCP: u32 = 6;

/// How many packets a frame is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// The frame is a single packet of this many bytes.
    Single(usize),
    /// The frame is a TCP super-packet, sent as several segments.
    Segments(SuperPacket),
}

/// The places of headers and payload in a TCP super-packet, found and checked once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperPacket {
    version: IpVersion,
    /// Length in bytes of the IP header with its options or extensions.
    ip_header: usize,
    /// Length in bytes of the IP and TCP headers, which every segment repeats.
    headers: usize,
    /// Payload in bytes of every segment but the last, which may have less.
    segment_payload: usize,
    /// Payload in bytes of the whole super-packet.
    payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IpVersion {
    V4,
    V6,
}

/// Finds how many packets a frame (virtio-net header and packet) is on the wire. A frame that isn't
/// understood counts as a single packet, carried as it is.
pub fn shape(frame: &[u8]) -> Shape {
    match super_packet(frame) {
        Some(found) if found.count() > 1 => Shape::Segments(found),
        _ => Shape::Single(frame.len().saturating_sub(HEADER)),
    }
}

/// Moves the places in the packet that the virtio-net header names by `by` bytes, because bytes in
/// front of the packet came or went.
pub(crate) fn shift_offsets(frame: &mut [u8], by: i16) {
    // flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
    for at in [2, 6] {
        let Some(field) = frame.get_mut(at..at + 2) else { return };
        let value = u16::from_le_bytes([field[0], field[1]]);
        // Zero: there is nothing to say.
        if value != 0 {
            field.copy_from_slice(&value.saturating_add_signed(by).to_le_bytes());
        }
    }
}

fn super_packet(frame: &[u8]) -> Option<SuperPacket> {
    let version = match frame.get(1)? & !GSO_ECN {
        GSO_TCP4 => IpVersion::V4,
        GSO_TCP6 => IpVersion::V6,
        _ => return None,
    };
    let little_endian =
        |at: usize| Some(usize::from(u16::from_le_bytes([*frame.get(at)?, *frame.get(at + 1)?])));
    let segment_payload = little_endian(4)?;
    // Where the checksum starts is where the TCP header does.
    let ip_header = little_endian(6)?;
    let packet = frame.get(HEADER..)?;
    let (nibble, least) = match version {
        IpVersion::V4 => (4, 20),
        IpVersion::V6 => (6, 40),
    };
    let tcp_header = usize::from(packet.get(ip_header + 12)? >> 4) * 4;
    let headers = ip_header + tcp_header;
    let sound = packet[0] >> 4 == nibble && ip_header >= least && tcp_header >= 20 && segment_payload > 0;
    let payload = packet.len().checked_sub(headers)?;
    sound.then_some(SuperPacket { version, ip_header, headers, segment_payload, payload })
}

impl SuperPacket {
    /// Number of segments that the super-packet is on the wire.
    pub fn count(&self) -> usize {
        self.payload.div_ceil(self.segment_payload)
    }

    /// Length in bytes of a segment on the wire, IP header included. Segments count from 0.
    pub fn wire_length(&self, segment: usize) -> usize {
        let start = segment * self.segment_payload;
        self.headers + self.segment_payload.min(self.payload.saturating_sub(start))
    }

    /// A frame with only `segments` of `frame`, which must be the frame that this value describes.
    /// Lengths, identification, checksums, sequence number and flags are as if the kernel had cut
    /// the super-packet at these places.
    pub fn extract(&self, frame: &[u8], segments: Range<usize>) -> Vec<u8> {
        let count = self.count();
        let segments = segments.start..segments.end.min(count);
        if segments == (0..count) || segments.is_empty() {
            return frame.to_vec();
        }
        let from = segments.start * self.segment_payload;
        let to = (segments.end * self.segment_payload).min(self.payload);
        let payload_at = HEADER + self.headers;
        let mut part = Vec::with_capacity(payload_at + to - from);
        part.extend_from_slice(&frame[..payload_at]);
        part.extend_from_slice(&frame[payload_at + from..payload_at + to]);

        // The kernel refuses a header length beyond the packet's end, and may
        // itself have given more than the headers' real length.
        part[2..4].copy_from_slice(&(self.headers as u16).to_le_bytes());
        if segments.len() == 1 {
            part[1] = GSO_NONE;
            part[4..6].fill(0);
        }
        let (ip, tcp) = part[HEADER..].split_at_mut(self.ip_header);
        let tcp_length = tcp.len();
        self.correct_ip(ip, tcp_length, segments.start);
        let last = segments.end == count;
        self.correct_tcp(ip, tcp, from, segments.start == 0, last);
        part
    }

    fn correct_ip(&self, ip: &mut [u8], tcp_length: usize, first: usize) {
        match self.version {
            IpVersion::V4 => {
                let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
                put_u16(ip, 2, (self.ip_header + tcp_length) as u16);
                put_u16(ip, 4, identification);
                put_u16(ip, 10, 0);
                let checksum = !fold(sum(ip));
                put_u16(ip, 10, checksum);
            }
            IpVersion::V6 => put_u16(ip, 4, (self.ip_header - 40 + tcp_length) as u16),
        }
    }

    fn correct_tcp(&self, ip: &[u8], tcp: &mut [u8], offset: usize, first: bool, last: bool) {
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if !last {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if !first {
            tcp[13] &= !TCP_CWR;
        }
        // Left to be completed (VIRTIO_NET_HDR_F_NEEDS_CSUM): the field holds
        // the sum of the pseudo-header only.
        let addresses = match self.version {
            IpVersion::V4 => &ip[12..20],
            IpVersion::V6 => &ip[8..40],
        };
        let pseudo = sum(addresses) + PROTOCOL_TCP + tcp.len() as u32;
        put_u16(tcp, 16, fold(pseudo));
    }
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum of the bytes as big-endian 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests;

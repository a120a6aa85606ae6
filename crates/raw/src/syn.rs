//! The segment with which a TCP connection begins (RFC 9293 section 3.5), in one
//! IPv4 packet (RFC 791).
//!
//! Only what a connection needs is read, and only that is written: whatever else
//! was in the packet (IP options, data, unknown TCP options) either makes it no
//! SYN or isn't carried on.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Length of an IPv4 header without options, and of a TCP header likewise.
const HEADER: usize = 20;
/// Length in bytes of the longest packet that [`Syn::to_bytes`] makes.
pub const MAX_LEN: usize = 60;

const TCP: u8 = 6;
const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" and the fragment's offset.
const FRAGMENT: u16 = 0x3fff;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
/// As Linux has it.
const TIME_TO_LIVE: u8 = 64;

/// Kinds of options (IANA's registry of TCP parameters).
mod kind {
    pub(super) const END: u8 = 0;
    pub(crate) const NO_OPERATION: u8 = 1;
    pub(crate) const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    pub(crate) const WINDOW_SCALE: u8 = 3;
    pub(crate) const SACK_PERMITTED: u8 = 4;
    pub(crate) const TIMESTAMPS: u8 = 8;
}

/// A SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syn {
    /// Who connects.
    pub source: SocketAddrV4,
    /// Where to.
    pub destination: SocketAddrV4,
    /// The initial sequence number.
    pub sequence: u32,
    /// The window in bytes, never scaled in a SYN.
    pub window: u16,
    /// What the sender offers besides.
    pub options: Options,
}

/// Options of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The longest segment that it takes, in bytes (RFC 9293 section 3.7.1).
    pub max_segment: Option<u16>,
    /// By how many bits later windows are shifted (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are welcome (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// The sender's clock (RFC 7323 section 3).
    pub timestamp: Option<u32>,
}

/// Why a packet isn't a SYN that can be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotASyn {
    /// Shorter than its headers say.
    #[error("cut off after {0} bytes")]
    Short(usize),
    /// Longer than its header says, or with data in it.
    #[error("{0} bytes more than its headers")]
    Long(usize),
    /// Not IPv4 without options.
    #[error("no IPv4 packet without options, but {0:#04x}")]
    NotIpv4(u8),
    /// Part of a packet.
    #[error("a fragment")]
    Fragment,
    /// Not TCP.
    #[error("protocol {0}, not TCP")]
    NotTcp(u8),
    /// No connection begins with it.
    #[error("a segment with flags {0:#04x}, not SYN alone")]
    Flags(u8),
    /// Its addresses can't belong to a host.
    #[error("port 0")]
    Port,
    /// An option longer than the header, or of another length than it has.
    #[error("bad option of kind {0}")]
    Option(u8),
}

impl Syn {
    /// Reads a packet. Its TCP checksum isn't looked at: where the network card
    /// computes it, what one sees of a packet under way doesn't have it yet.
    ///
    /// # Errors
    /// [`NotASyn`].
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

    /// The same from another address: as a NAT has translated it on its way.
    #[must_use]
    pub fn translated(self, source: SocketAddrV4) -> Self {
        Self { source, ..self }
    }

    /// The packet, whole and with right checksums, and at most [`MAX_LEN`] bytes
    /// long. It asks for no explicit congestion notification, which the answer
    /// then doesn't offer.
    pub fn to_bytes(self) -> Vec<u8> {
        let options = self.options.to_bytes();
        // At most 60 and 40: they fit.
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

impl Options {
    fn parse(mut bytes: &[u8]) -> Result<Self, NotASyn> {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            let (kind, bad) = (*kind, NotASyn::Option(*kind));
            match kind {
                kind::END => break,
                kind::NO_OPERATION => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            // The length counts kind and length, too.
            let length = rest.first().map(|length| usize::from(*length)).ok_or(bad)?;
            let (option, after) = bytes.split_at_checked(length).ok_or(bad)?;
            match (kind, option.get(2..).ok_or(bad)?) {
                (kind::MAXIMUM_SEGMENT_SIZE, [a, b]) => {
                    options.max_segment = Some(u16::from_be_bytes([*a, *b]));
                }
                (kind::WINDOW_SCALE, [scale]) => options.window_scale = Some(*scale),
                (kind::SACK_PERMITTED, []) => options.sack_permitted = true,
                (kind::TIMESTAMPS, [a, b, c, d, ..]) if length == 10 => {
                    options.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                }
                (
                    kind::MAXIMUM_SEGMENT_SIZE | kind::WINDOW_SCALE | kind::SACK_PERMITTED | kind::TIMESTAMPS,
                    _,
                ) => return Err(bad),
                // Offers that need not be taken up.
                _ => {}
            }
            bytes = after;
        }
        Ok(options)
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_LEN - 2 * HEADER);
        if let Some(size) = self.max_segment {
            bytes.extend([kind::MAXIMUM_SEGMENT_SIZE, 4]);
            bytes.extend(size.to_be_bytes());
        }
        if self.sack_permitted {
            bytes.extend([kind::SACK_PERMITTED, 2]);
        }
        if let Some(clock) = self.timestamp {
            bytes.extend([kind::TIMESTAMPS, 10]);
            bytes.extend(clock.to_be_bytes());
            bytes.extend([0; 4]);
        }
        if let Some(scale) = self.window_scale {
            bytes.extend([kind::WINDOW_SCALE, 3, scale]);
        }
        while bytes.len() % 4 != 0 {
            bytes.push(kind::NO_OPERATION);
        }
        bytes
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn syn() -> Syn {
        Syn {
            source: "192.0.2.1:40000".parse().unwrap(),
            destination: "198.51.100.7:7730".parse().unwrap(),
            sequence: 0x0102_0304,
            window: 64_240,
            options: Options {
                max_segment: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamp: Some(12_345),
            },
        }
    }

    #[test]
    fn another_implementation_reads_what_is_written() {
        for options in [syn().options, Options::default()] {
            let bytes = Syn { options, ..syn() }.to_bytes();
            let packet = etherparse::SlicedPacket::from_ip(&bytes).unwrap();
            let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else { panic!("no IPv4") };
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            let Some(etherparse::TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("no TCP") };
            let header = tcp.to_header();
            assert_eq!(header.checksum, header.calc_checksum_ipv4(&ip.header().to_header(), &[]).unwrap());
            assert_eq!((header.source_port, header.destination_port), (40_000, 7730));
            assert!(header.syn && !header.ack && tcp.payload().is_empty());
        }
        assert_eq!(syn().to_bytes().len(), MAX_LEN);
    }

    #[test]
    fn only_a_syn_is_one() {
        let good = syn().to_bytes();
        let with = |offset: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[offset] = value;
            bytes
        };
        let longer = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.push(0);
            bytes
        };
        for (name, bytes, want) in [
            ("nothing", vec![], NotASyn::Short(0)),
            ("half", good[..30].to_vec(), NotASyn::Short(30)),
            ("without its options", good[..40].to_vec(), NotASyn::Short(40)),
            ("IPv6", with(0, 0x65), NotASyn::NotIpv4(0x65)),
            ("IP options", with(0, 0x46), NotASyn::NotIpv4(0x46)),
            ("UDP", with(9, 17), NotASyn::NotTcp(17)),
            ("more fragments", with(6, 0x20), NotASyn::Fragment),
            ("a later fragment", with(7, 1), NotASyn::Fragment),
            ("longer than it says", longer(&good), NotASyn::Long(1)),
            ("data", longer(&with(3, 61)), NotASyn::Long(1)),
            ("options as data", with(32, 0x50), NotASyn::Long(20)),
            ("options beyond the end", with(32, 0xf0), NotASyn::Short(60)),
            ("a header too short", with(32, 0x40), NotASyn::Short(60)),
            ("an answer", with(33, SYN | ACK), NotASyn::Flags(SYN | ACK)),
            ("a reset", with(33, RST), NotASyn::Flags(RST)),
            ("no flags", with(33, 0), NotASyn::Flags(0)),
            (
                "to port 0",
                {
                    let mut bytes = with(22, 0);
                    bytes[23] = 0;
                    bytes
                },
                NotASyn::Port,
            ),
            ("an option of length 0", with(41, 0), NotASyn::Option(2)),
            ("an option beyond the end", with(41, 200), NotASyn::Option(2)),
            ("an option of a wrong length", with(45, 3), NotASyn::Option(4)),
        ] {
            assert_eq!(Syn::parse(&bytes), Err(want), "{name}");
        }
    }

    #[test]
    fn what_need_not_be_carried_is_left_out() {
        let mut bytes = syn().to_bytes();
        // Explicit congestion notification is asked for (RFC 3168 section 6.1.1).
        bytes[33] = SYN | 0xc0;
        // A cookie of TCP Fast Open (RFC 7413) in place of the timestamp.
        bytes[46] = 34;
        // A checksum that the network card was to compute.
        bytes[36] ^= 0xff;
        let read = Syn::parse(&bytes).unwrap();
        assert_eq!(read, Syn { options: Options { timestamp: None, ..syn().options }, ..syn() });
        assert_eq!(read.to_bytes()[33], SYN);
    }

    #[test]
    fn a_translated_one_differs_by_its_source() {
        let outside: SocketAddrV4 = "203.0.113.9:61000".parse().unwrap();
        let translated = Syn::parse(&syn().translated(outside).to_bytes()).unwrap();
        assert_eq!(translated, Syn { source: outside, ..syn() });
    }

    fn any_syn() -> impl Strategy<Value = Syn> {
        let end = || (any::<u32>(), 1..=u16::MAX).prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
        let options = (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<u32>>());
        (end(), end(), any::<u32>(), any::<u16>(), options).prop_map(
            |(
                source,
                destination,
                sequence,
                window,
                (max_segment, window_scale, sack_permitted, timestamp),
            )| {
                let options = Options { max_segment, window_scale, sack_permitted, timestamp };
                Syn { source, destination, sequence, window, options }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(syn in any_syn()) {
            let bytes = syn.to_bytes();
            prop_assert!(bytes.len() <= MAX_LEN);
            prop_assert_eq!(Syn::parse(&bytes), Ok(syn));
        }

        #[test]
        fn no_bytes_are_too_wild(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(syn) = Syn::parse(&bytes) {
                prop_assert_eq!(Syn::parse(&syn.to_bytes()), Ok(syn));
            }
        }

        #[test]
        fn a_damaged_one_is_none_or_another(syn in any_syn(), at in 0..MAX_LEN, value: u8) {
            let mut bytes = syn.to_bytes();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let Ok(read) = Syn::parse(&bytes) {
                prop_assert!(read.to_bytes().len() <= MAX_LEN);
            }
        }
    }
}

use etherparse::{Ipv4Header, Ipv6Header, SlicedPacket, TcpHeader, TransportSlice};
use proptest::prelude::*;

use super::*;

/// A super-packet as the kernel gives it, and what it consists of.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub frame: Vec<u8>,
    pub payload: Vec<u8>,
    pub segment_payload: usize,
    pub sequence: u32,
    pub identification: u16,
}

/// Builds a TCP super-packet over IPv4 or IPv6 with all flags set that only
/// the first or last segment may carry.
pub(crate) fn sample(
    v6: bool,
    length: usize,
    segment_payload: usize,
    sequence: u32,
    identification: u16,
) -> Sample {
    let payload: Vec<u8> = (0..length).map(|i| (i * 31 + i / 251) as u8).collect();
    let mut tcp = TcpHeader::new(40_000, 5001, sequence, 1000);
    (tcp.ack, tcp.psh, tcp.fin, tcp.cwr) = (true, true, true, true);
    tcp.set_options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).unwrap();
    let tcp_length = tcp.header_len() + payload.len();
    let mut packet = Vec::new();
    let ip_header = if v6 {
        let ip = Ipv6Header {
            payload_length: tcp_length as u16,
            next_header: etherparse::IpNumber::TCP,
            hop_limit: 64,
            source: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            destination: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            ..Default::default()
        };
        ip.write(&mut packet).unwrap();
        40
    } else {
        let mut ip = Ipv4Header::new(
            tcp_length as u16,
            64,
            etherparse::IpNumber::TCP,
            [10, 0, 0, 1],
            [203, 0, 113, 9],
        )
        .unwrap();
        ip.identification = identification;
        ip.header_checksum = ip.calc_header_checksum();
        ip.write(&mut packet).unwrap();
        20
    };
    tcp.write(&mut packet).unwrap();
    packet.extend_from_slice(&payload);
    let gso = if v6 { GSO_TCP6 } else { GSO_TCP4 };
    let mut frame = vec![1, gso];
    // The kernel gives the linear part of its buffer as header length.
    for field in [200, segment_payload as u16, ip_header, 16] {
        frame.extend_from_slice(&field.to_le_bytes());
    }
    frame.extend_from_slice(&packet);
    Sample { frame, payload, segment_payload, sequence, identification }
}

fn super_packet_of(frame: &[u8]) -> SuperPacket {
    match shape(frame) {
        Shape::Segments(found) => found,
        Shape::Single(length) => panic!("a single packet of {length} bytes"),
    }
}

/// Completes a packet's checksum, as the receiving kernel or its device would.
fn complete(frame: &[u8]) -> Vec<u8> {
    let mut packet = frame[HEADER..].to_vec();
    let start = usize::from(u16::from_le_bytes([frame[6], frame[7]]));
    let checksum = !fold(sum(&packet[start..]));
    put_u16(&mut packet, start + 16, checksum);
    packet
}

/// Checks with an independent parser that a frame is the given segment of the sample.
fn check_segment(sample: &Sample, frame: &[u8], segment: usize, count: usize) {
    let packet = complete(frame);
    let sliced = SlicedPacket::from_ip(&packet).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
    let from = segment * sample.segment_payload;
    let to = (from + sample.segment_payload).min(sample.payload.len());
    assert_eq!(tcp.payload(), &sample.payload[from..to], "payload of segment {segment}");
    assert_eq!(tcp.sequence_number(), sample.sequence.wrapping_add(from as u32));
    assert!(tcp.ack());
    assert_eq!((tcp.psh(), tcp.fin()), (segment + 1 == count, segment + 1 == count));
    assert_eq!(tcp.cwr(), segment == 0);
    let expected = match sliced.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            assert_eq!(usize::from(header.total_len()), packet.len());
            assert_eq!(header.identification(), sample.identification.wrapping_add(segment as u16));
            tcp.calc_checksum_ipv4(header.source(), header.destination()).unwrap()
        }
        etherparse::NetSlice::Ipv6(ip) => {
            assert_eq!(usize::from(ip.header().payload_length()), packet.len() - 40);
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap()
        }
        etherparse::NetSlice::Arp(_) => panic!("not IP"),
    };
    assert_eq!(tcp.checksum(), expected);
    assert_eq!((frame[1], &frame[4..6]), (GSO_NONE, &[0, 0][..]), "no longer a super-packet");
}

proptest! {
    /// A super-packet that is cut into groups anywhere, and then into single segments, gives the
    /// packets of a single cut.
    #[test]
    fn any_cut_gives_the_same_segments(
        v6: bool,
        length in 2usize..20_000,
        segment_payload in 1usize..3_000,
        sequence: u32,
        identification: u16,
        cuts in proptest::collection::btree_set(0usize..200, 0..6),
    ) {
        // A super-packet never has more segments than this (GSO_MAX_SEGS is
        // 65,535 bytes of them); tiny segments only make the test slow.
        let segment_payload = segment_payload.max(length.div_ceil(200));
        let sample = sample(v6, length, segment_payload, sequence, identification);
        prop_assume!(length > segment_payload);
        let whole = super_packet_of(&sample.frame);
        let count = whole.count();
        let mut bounds: Vec<usize> = cuts.into_iter().filter(|cut| *cut > 0 && *cut < count).collect();
        bounds.insert(0, 0);
        bounds.push(count);
        for pair in bounds.windows(2) {
            let group = whole.extract(&sample.frame, pair[0]..pair[1]);
            let hdr_len = usize::from(u16::from_le_bytes([group[2], group[3]]));
            prop_assert!(hdr_len <= group.len() - HEADER || pair[1] - pair[0] == count);
            if pair[1] - pair[0] == 1 {
                check_segment(&sample, &group, pair[0], count);
                continue;
            }
            let inner = super_packet_of(&group);
            prop_assert_eq!(inner.count(), pair[1] - pair[0]);
            for segment in 0..inner.count() {
                let one = inner.extract(&group, segment..segment + 1);
                prop_assert_eq!(one.len() - HEADER, whole.wire_length(pair[0] + segment));
                check_segment(&sample, &one, pair[0] + segment, count);
            }
        }
    }

    /// No bytes that a device might give make the function panic.
    #[test]
    fn any_bytes_have_a_shape(frame in proptest::collection::vec(any::<u8>(), 0..200), gso in 0u8..6) {
        let mut frame = frame;
        if frame.len() > 10 {
            frame[1] = gso;
            frame[7] = 0;
            frame[10] = if gso == GSO_TCP4 { 0x45 } else { 0x60 };
        }
        if let Shape::Segments(found) = shape(&frame) {
            for segment in 0..found.count() {
                let part = found.extract(&frame, segment..segment + 1);
                prop_assert_eq!(part.len() - HEADER, found.wire_length(segment));
            }
        }
    }
}

#[test]
fn what_is_no_super_packet_is_single() {
    let sample = sample(false, 1000, 1448, 1, 1);
    assert_eq!(shape(&sample.frame), Shape::Single(sample.frame.len() - HEADER), "one segment only");
    assert_eq!(shape(&[0; 50]), Shape::Single(40));
    assert_eq!(shape(&[]), Shape::Single(0));
}

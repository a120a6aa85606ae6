//! Tests of the SYN against another implementation, and from damaged bytes.

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
fn another_implementation_reads_the_written_packet() {
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
fn other_packets_are_refused() {
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
        ("longer than its header's length", longer(&good), NotASyn::Long(1)),
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
fn other_options_and_flags_are_left_out() {
    let mut bytes = syn().to_bytes();
    // Explicit congestion notification is asked for (RFC 3168 section 6.1.1).
    bytes[33] = SYN | 0xc0;
    // A cookie of TCP Fast Open (RFC 7413) in place of the timestamp.
    bytes[46] = 34;
    // A checksum that the network card would compute.
    bytes[36] ^= 0xff;
    let read = Syn::parse(&bytes).unwrap();
    assert_eq!(read, Syn { options: Options { timestamp: None, ..syn().options }, ..syn() });
    assert_eq!(read.to_bytes()[33], SYN);
}

#[test]
fn a_translated_syn_differs_by_its_source() {
    let outside: SocketAddrV4 = "203.0.113.9:61000".parse().unwrap();
    let translated = Syn::parse(&syn().translated(outside).to_bytes()).unwrap();
    assert_eq!(translated, Syn { source: outside, ..syn() });
}

fn any_syn() -> impl Strategy<Value = Syn> {
    let end = || (any::<u32>(), 1..=u16::MAX).prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
    let options = (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<u32>>());
    (end(), end(), any::<u32>(), any::<u16>(), options).prop_map(
        |(source, destination, sequence, window, (max_segment, window_scale, sack_permitted, timestamp))| {
            let options = Options { max_segment, window_scale, sack_permitted, timestamp };
            Syn { source, destination, sequence, window, options }
        },
    )
}

proptest! {
    #[test]
    fn a_written_syn_reads_the_same(syn in any_syn()) {
        let bytes = syn.to_bytes();
        prop_assert!(bytes.len() <= MAX_LEN);
        prop_assert_eq!(Syn::parse(&bytes), Ok(syn));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(syn) = Syn::parse(&bytes) {
            prop_assert_eq!(Syn::parse(&syn.to_bytes()), Ok(syn));
        }
    }

    #[test]
    fn a_damaged_syn_is_refused_or_another_one(syn in any_syn(), at in 0..MAX_LEN, value: u8) {
        let mut bytes = syn.to_bytes();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        if let Ok(read) = Syn::parse(&bytes) {
            prop_assert!(read.to_bytes().len() <= MAX_LEN);
        }
    }
}

//! The layouts by hand, and properties of encoding and decoding.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{Addresses, Congestion, Incarnation, ProtocolError, Purpose, TrunkId};

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn hello() -> Hello {
    Hello {
        role: Role::Initiator,
        standing: false,
        lowest: 1,
        highest: 2,
        trunk: TrunkId(*b"0123456789abcdef"),
        carrier: 7,
        purpose: Purpose::Bulk,
        congestion: Congestion::Other,
        credit: 0x4000,
        streams: 0x100,
        incarnation: None,
        addresses: Addresses::default(),
    }
}

fn addresses() -> Addresses {
    ["198.51.100.1:7740", "198.51.100.2:7741"].iter().map(|address| address.parse().unwrap()).collect()
}

/// Checks that a frame has these bytes, and that no fewer of them are a frame.
fn check_layout(name: &str, hex: &str, frame: &Frame) {
    let wire = bytes(hex);
    assert_eq!(frame.encode().to_vec(), wire, "{name}");
    assert_eq!(Frame::decode(&mut wire.clone()), Ok(Some(frame.clone())), "{name}");
    for short in 0..wire.len() {
        assert_eq!(Frame::decode(&mut wire.slice(..short)), Ok(None), "{name}, {short} bytes");
    }
}

/// In the expected bytes, type, flags and length stand apart from the fields of the body.
#[test]
fn layouts() {
    let stream = StreamId(0x0102);
    let hello_body = "4953544b 0001 0002 30313233343536373839616263646566 00000007 00004000 00000100";
    for (name, hex, frame) in [
        ("hello", format!("01 01 0024 {hello_body}"), Frame::Hello(hello())),
        (
            "hello of the acceptor on a standing trunk",
            format!("01 02 0024 {hello_body}"),
            Frame::Hello(Hello { role: Role::Acceptor, standing: true, ..hello() }),
        ),
        (
            "hello of a carrier for small frames",
            format!("01 05 0024 {hello_body}"),
            Frame::Hello(Hello { purpose: Purpose::Small, ..hello() }),
        ),
        (
            "hello of an end with BBR",
            format!("01 09 0024 {hello_body}"),
            Frame::Hello(Hello { congestion: Congestion::Bbr, ..hello() }),
        ),
        (
            "hello of a service that tells its start",
            format!("01 01 0034 {hello_body} 66656463626139383736353433323130"),
            Frame::Hello(Hello { incarnation: Some(Incarnation(*b"fedcba9876543210")), ..hello() }),
        ),
        (
            "hello of a service with two rails, that doesn't tell its start",
            format!("01 01 0041 {hello_body} {:032x} 02 c6336401 1e3c c6336402 1e3d", 0),
            Frame::Hello(Hello { addresses: addresses(), ..hello() }),
        ),
        ("open", "02 00 0008 0000000000000102".into(), Frame::Open { stream }),
        (
            "data",
            "03 00 0013 0000000000000102 0000000000000a00 616263".into(),
            Frame::Data { stream, offset: 0xa00, end: false, payload: Bytes::from_static(b"abc") },
        ),
        (
            "end without data",
            "03 01 0010 0000000000000102 0000000000000a03".into(),
            Frame::Data { stream, offset: 0xa03, end: true, payload: Bytes::new() },
        ),
        (
            "credit",
            "04 00 0010 0000000000000102 0000000000010000".into(),
            Frame::Credit { stream, limit: 0x10000 },
        ),
        ("streams", "04 01 0010 0000000000000000 0000000000000200".into(), Frame::Streams { limit: 0x200 }),
        (
            "reset",
            "05 00 0014 0000000000000102 0000000000000a03 00000068".into(),
            Frame::Reset { stream, stop: false, code: 0x68, offset: 0xa03 },
        ),
        (
            "stop",
            "05 01 0014 0000000000000102 0000000000000000 00000020".into(),
            Frame::Reset { stream, stop: true, code: 0x20, offset: 0 },
        ),
        ("ack", "06 00 000c 00000007 0000000000000123".into(), Frame::Ack { carrier: 7, frames: 0x123 }),
        (
            "close",
            "08 00 0006 0003 6f6c6421".into(),
            Frame::Close { scope: Scope::Carrier, reason: Reason::Version, text: "old!".into() },
        ),
        (
            "close of the trunk",
            "08 01 0002 0000".into(),
            Frame::Close { scope: Scope::Trunk, reason: Reason::Done, text: String::new() },
        ),
    ] {
        check_layout(name, &hex, &frame);
    }
}

#[test]
fn what_is_no_frame_is_refused() {
    let stream = StreamId(1);
    let ids = "30313233343536373839616263646566 00000007";
    for (name, hex, error) in [
        ("type 0", "00 00 0008".into(), ProtocolError::UnknownType(0)),
        ("type 9", "09 00 0008".into(), ProtocolError::UnknownType(9)),
        ("flag of open", "02 01 0008".into(), ProtocolError::UnknownFlags { kind: 2, flags: 1 }),
        ("flag of data", "03 02 0020".into(), ProtocolError::UnknownFlags { kind: 3, flags: 2 }),
        ("short open", "02 00 0007".into(), ProtocolError::BodyLength { kind: 2, length: 7 }),
        ("long data", "03 00 3ffd".into(), ProtocolError::BodyLength { kind: 3, length: 0x3ffd }),
        ("short hello", "01 00 0023".into(), ProtocolError::BodyLength { kind: 1, length: 0x23 }),
        ("long close", "08 00 0103".into(), ProtocolError::BodyLength { kind: 8, length: 0x103 }),
        ("nothing", "03 00 0010 0000000000000001 0000000000000000".into(), ProtocolError::EmptyData(stream)),
        ("text", "08 00 0003 0000 ff".into(), ProtocolError::Text),
        (
            "magic",
            format!("01 00 0024 49535448 0001 0001 {ids} 00004000 00000100"),
            ProtocolError::Magic(*b"ISTH"),
        ),
        (
            "versions",
            format!("01 00 0024 4953544b 0002 0001 {ids} 00004000 00000100"),
            ProtocolError::HelloFields { lowest: 2, highest: 1, credit: 0x4000, streams: 0x100 },
        ),
        (
            "no credit",
            format!("01 00 0024 4953544b 0001 0001 {ids} 00000000 00000100"),
            ProtocolError::HelloFields { lowest: 1, highest: 1, credit: 0, streams: 0x100 },
        ),
        (
            "streams",
            format!("01 00 0024 4953544b 0001 0001 {ids} 00004000 00100001"),
            ProtocolError::HelloFields { lowest: 1, highest: 1, credit: 0x4000, streams: 0x100001 },
        ),
        (
            "hello with a part of an address",
            format!("01 00 003a 4953544b 0001 0001 {ids} 00004000 00000100 {:032x} 01 c6336401 1e", 0),
            ProtocolError::HelloAddresses,
        ),
    ] {
        assert_eq!(Frame::decode(&mut bytes(&hex)), Err(error), "{name}");
    }
}

#[test]
fn a_later_hello_may_be_longer() {
    let mut wire = Frame::Hello(hello()).encode().to_vec();
    wire[3] += 16 + 13 + 3;
    wire.extend([7; 16]);
    wire.extend(bytes("02 c6336401 1e3c c6336402 1e3d"));
    wire.extend([1, 2, 3]);
    let told = Hello { incarnation: Some(Incarnation([7; 16])), addresses: addresses(), ..hello() };
    assert_eq!(Frame::decode(&mut wire.clone().into()), Ok(Some(Frame::Hello(told))));
    assert_eq!(Hello::peek(&wire), Ok(Some(told)));
    assert_eq!(Hello::peek(&wire[..50]), Ok(None));
    assert_eq!(Hello::peek(b"\x02"), Err(ProtocolError::NotHello(2)));
}

#[test]
fn layouts_of_pings() {
    for (name, hex, answer, carriers) in [
        ("question", "07 00 0008 00000000000000ff", false, 0),
        ("question that tells how many carriers are of use", "07 00 0009 00000000000000ff 05", false, 5),
        ("answer", "07 01 0008 00000000000000ff", true, 0),
    ] {
        check_layout(name, hex, &Frame::Ping { answer, nonce: 0xff, carriers });
    }
}

#[test]
fn a_ping_may_be_padded() {
    let mut wire = bytes("07 00 000b 0000000000000005 000000 07");
    assert_eq!(Frame::decode(&mut wire), Ok(Some(Frame::Ping { answer: false, nonce: 5, carriers: 0 })));
    assert_eq!(wire, bytes("07"));
}

#[test]
fn the_longest_data_fills_one_record_and_the_text_of_close_is_cut() {
    let payload = Bytes::from(vec![1; MAX_PAYLOAD]);
    let data = Frame::Data { stream: StreamId(0), offset: 0, end: false, payload };
    assert_eq!(data.encode().len(), MAX_FRAME);
    let text = "é".repeat(MAX_TEXT);
    let close = Frame::Close { scope: Scope::Trunk, reason: Reason::Done, text }.encode();
    let Ok(Some(Frame::Close { text, .. })) = Frame::decode(&mut close.to_vec().into()) else { panic!() };
    assert_eq!(text, "é".repeat(MAX_TEXT / 2));
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let stream = any::<u64>().prop_map(StreamId);
    let role = any::<bool>().prop_map(|first| if first { Role::Initiator } else { Role::Acceptor });
    let hello = (
        role,
        any::<bool>(),
        1..9_u16,
        0..9_u16,
        any::<[u8; 16]>(),
        any::<u32>(),
        1..=u32::MAX,
        0..=1_u32 << 20,
        any::<Option<[u8; 16]>>(),
        prop::collection::vec(any::<(u32, u16)>(), 0..=8),
    );
    let data = (stream.clone(), any::<u64>(), any::<bool>(), prop::collection::vec(any::<u8>(), 1..2000));
    let scope = any::<bool>().prop_map(|all| if all { Scope::Trunk } else { Scope::Carrier });
    prop_oneof![
        hello.prop_map(
            |(role, standing, lowest, more, trunk, carrier, credit, streams, incarnation, addresses)| {
                let trunk = TrunkId(trunk);
                let address = |(ip, port): (u32, u16)| std::net::SocketAddrV4::new(ip.into(), port);
                Frame::Hello(Hello {
                    role,
                    standing,
                    lowest,
                    highest: lowest + more,
                    trunk,
                    carrier,
                    purpose: if standing ^ (carrier & 1 == 1) { Purpose::Small } else { Purpose::Bulk },
                    congestion: if carrier & 2 == 2 { Congestion::Bbr } else { Congestion::Other },
                    credit,
                    streams,
                    incarnation: incarnation.map(Incarnation),
                    addresses: addresses.into_iter().map(address).collect(),
                })
            }
        ),
        stream.clone().prop_map(|stream| Frame::Open { stream }),
        data.prop_map(|(stream, offset, end, payload)| Frame::Data {
            stream,
            offset,
            end,
            payload: payload.into()
        }),
        (stream.clone(), any::<u64>()).prop_map(|(stream, limit)| Frame::Credit { stream, limit }),
        any::<u64>().prop_map(|limit| Frame::Streams { limit }),
        (stream, any::<bool>(), any::<u32>(), any::<u64>())
            .prop_map(|(stream, stop, code, offset)| Frame::Reset { stream, stop, code, offset }),
        (any::<u32>(), any::<u64>()).prop_map(|(carrier, frames)| Frame::Ack { carrier, frames }),
        (any::<bool>(), any::<u64>(), any::<u8>()).prop_map(|(answer, nonce, carriers)| Frame::Ping {
            answer,
            nonce,
            carriers
        }),
        (scope, any::<u16>(), ".{0,40}").prop_map(|(scope, code, text)| Frame::Close {
            scope,
            reason: Reason::from_code(code),
            text
        }),
    ]
}

proptest! {
    #[test]
    fn a_frame_is_read_as_it_was_written(frame in any_frame(), rest in prop::collection::vec(any::<u8>(), 0..9)) {
        let encoded = frame.encode();
        let mut wire = encoded.to_vec();
        prop_assert_eq!(wire.len(), encoded.len());
        wire.extend(&rest);
        let mut wire = Bytes::from(wire);
        prop_assert_eq!(Frame::decode(&mut wire), Ok(Some(frame)));
        prop_assert_eq!(wire, Bytes::from(rest));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic(kind in 0..10_u8, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for mut wire in [Bytes::from(bytes.clone()), [&[kind, 0, 0][..], &bytes].concat().into()] {
            let before = wire.clone();
            match Frame::decode(&mut wire) {
                Ok(Some(frame)) => {
                    let length = before.len() - wire.len();
                    prop_assert!(length <= MAX_FRAME);
                    // Zeros in CREDIT, and what follows a HELLO or a nonce, aren't kept.
                    if !matches!(frame, Frame::Streams { .. } | Frame::Hello(_) | Frame::Ping { .. }) {
                        prop_assert_eq!(frame.encode().to_vec(), before.slice(..length));
                    }
                }
                Ok(None) => prop_assert_eq!(wire, before),
                Err(_) => {}
            }
        }
    }
}

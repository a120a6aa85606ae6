use std::path::Path;

use proptest::prelude::*;

use super::*;

/// A state with each kind of end and of held data.
fn sample() -> State {
    let end = |descriptor, urgent, failed| PairSocket { descriptor, urgent, failed };
    let flow = |source_ended, ended, held| Flow { source_ended, ended, held };
    State {
        service: Service::Relay,
        connections: 7,
        bytes: 1 << 40,
        listeners: vec![
            Listener { descriptor: 9, configured: "0.0.0.0:7720".parse().unwrap() },
            Listener { descriptor: 10, configured: "[fe80::1%3]:0".parse().unwrap() },
        ],
        pairs: vec![
            Pair {
                ends: [end(11, false, false), end(12, true, false)],
                flows: [
                    flow(false, false, Held::Bytes(b"held".to_vec())),
                    flow(true, false, Held::Piped { read: 20, write: 21, length: 65536 }),
                ],
            },
            Pair {
                ends: [end(13, false, true), end(14, true, true)],
                flows: [flow(true, true, Held::Nothing), Flow::default()],
            },
        ],
    }
}

/// What a release writes, another release reads. A change of the layout needs another VERSION, or
/// both releases must read both layouts.
#[test]
fn the_layout_is_as_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("proto/upgrade.v{VERSION}.golden"));
    let hex: String = sample()
        .encode()
        .unwrap()
        .chunks(32)
        .map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
        .collect();
    if std::env::var_os("ISTHMUS_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &hex).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), hex, "{}", path.display());
    let digits = hex.replace('\n', "");
    let bytes = digits.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    let bytes: Vec<u8> = bytes.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
    assert_eq!(State::decode(&bytes), Ok(sample()));
}

#[test]
fn what_cannot_be_is_refused() {
    let changed = |change: fn(&mut State)| {
        let mut state = sample();
        change(&mut state);
        State::decode(&state.encode().unwrap()).unwrap_err().reason
    };
    for (change, want) in [
        ((|state| state.listeners[0].descriptor = 2) as fn(&mut State), "2 is no descriptor to hand over"),
        (|state| state.pairs[1].ends[1].descriptor = 1 << 31, "2147483648 is no descriptor to hand over"),
        (|state| state.pairs[1].ends[1].descriptor = 11, "descriptor 11 occurs twice"),
        (|state| state.pairs[1].ends[1].descriptor = 20, "descriptor 20 occurs twice"),
        (|state| state.pairs[1].flows[0].source_ended = false, "a flow in a state that can't be"),
        (|state| state.pairs[0].flows[1].ended = true, "a flow in a state that can't be"),
        (|state| state.pairs[0].flows[0].held = Held::Bytes(Vec::new()), "a flow in a state that can't be"),
    ] {
        assert_eq!(changed(change), want);
    }
    let whole = sample().encode().unwrap();
    let with = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        State::decode(&bytes).unwrap_err().reason
    };
    let pairs = HEAD_LEN + 2 * 27;
    for (place, byte, want) in [
        (0, b'X', "it doesn't begin with ISUP"),
        (5, 2, "it has version 2, and this program understands 1 to 1"),
        (6, 9, "unknown service 9"),
        (7, 9, "9 listeners, at most 8 are allowed"),
        (8, 1, "16777218 pairs, at most 524288 are allowed"),
        (10, 1, "258 pairs for its length, at most 7 are allowed"),
        (HEAD_LEN + 4, 5, "an address of family 5 that can't be"),
        (HEAD_LEN + 12, 1, "an address of family 4 that can't be"),
        (pairs + 4, 4, "unknown flags 0x4"),
        (pairs + 11, 3, "a flow that holds something of kind 3"),
        (pairs + 12, 1, "16777220 bytes of a flow, at most 1048576 are allowed"),
    ] {
        assert_eq!(with(place, byte), want, "byte {place}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(State::decode(&longer).unwrap_err().reason, "1 bytes follow its end");
    for length in 0..whole.len() {
        assert!(State::decode(&whole[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn what_breaks_a_bound_is_not_written() {
    let mut state = sample();
    state.pairs[0].flows[0].held = Held::Bytes(vec![0; MAX_HELD_BYTES + 1]);
    assert!(state.encode().is_err());
    let mut state = sample();
    state.listeners = vec![state.listeners[0]; MAX_LISTENERS + 1];
    assert!(state.encode().is_err());
}

#[test]
fn a_program_says_what_it_understands() {
    assert_eq!(read_answer(&answer()), Ok(UNDERSTOOD));
    assert_eq!(read_answer("isthmus upgrade 2-5"), Ok(2..=5));
    for line in ["", "isthmus 0.1.0", "isthmus upgrade 1", "isthmus upgrade 01-2", "isthmus upgrade 1-70000"]
    {
        assert!(read_answer(line).is_err(), "{line}");
    }
}

fn held() -> impl Strategy<Value = Held> {
    prop_oneof![
        Just(Held::Nothing),
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Held::Bytes),
        (1u32..).prop_map(|length| Held::Piped { read: 0, write: 0, length }),
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    (any::<bool>(), any::<bool>(), held()).prop_map(|(source_ended, ended, held)| {
        let ended = ended && source_ended && held == Held::Nothing;
        Flow { source_ended, ended, held }
    })
}

fn state() -> impl Strategy<Value = State> {
    let pair = ([flow(), flow()], any::<[bool; 4]>());
    let parts = (
        prop::sample::select(vec![Service::Gateway, Service::Relay, Service::Agent]),
        any::<[u64; 2]>(),
        prop::collection::vec(any::<SocketAddr>(), 0..=MAX_LISTENERS),
        prop::collection::vec(pair, 0..20),
    );
    parts.prop_map(|(service, [connections, bytes], addresses, pairs)| {
        // Numbers in turn, so that all differ.
        let mut numbers = FIRST_DESCRIPTOR..;
        let mut next = || numbers.next().unwrap();
        let listeners = addresses.into_iter().map(|mut configured| {
            if let SocketAddr::V6(v6) = &mut configured {
                v6.set_flowinfo(0);
            }
            Listener { descriptor: next(), configured }
        });
        let listeners = listeners.collect();
        let pairs = pairs.into_iter().map(|(mut flows, [a, b, c, d])| {
            for flow in &mut flows {
                if let Held::Piped { read, write, .. } = &mut flow.held {
                    (*read, *write) = (next(), next());
                }
            }
            let ends =
                [(a, b), (c, d)].map(|(urgent, failed)| PairSocket { descriptor: next(), urgent, failed });
            Pair { ends, flows }
        });
        let pairs = pairs.collect();
        State { service, connections, bytes, listeners, pairs }
    })
}

proptest! {
    #[test]
    fn round_trip(state in state()) {
        let bytes = state.encode().unwrap();
        prop_assert_eq!(State::decode(&bytes), Ok(state));
    }

    #[test]
    fn changed_bytes_decode_or_fail_without_panic(state in state(), place: prop::sample::Index, byte: u8) {
        let mut bytes = state.encode().unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(read) = State::decode(&bytes) {
            prop_assert_eq!(read.encode(), Ok(bytes));
        }
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = State::decode(&bytes);
    }
}

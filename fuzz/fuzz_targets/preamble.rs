//! Preamble and answer: decoding and encoding again gives the same bytes.
#![no_main]

use isthmus_wire::preamble::{ANSWER_LEN, Answer, PREAMBLE_LEN, Preamble};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(bytes) = bytes.first_chunk::<PREAMBLE_LEN>()
        && let Ok((preamble, mac)) = Preamble::decode(bytes)
    {
        assert_eq!(preamble.encode(&mac), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<ANSWER_LEN>()
        && let Ok((answer, mac)) = Answer::decode(bytes)
    {
        assert_eq!(Answer::decode(&answer.encode(&mac)), Ok((answer, mac)));
    }
});

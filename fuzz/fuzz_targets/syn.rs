//! The segment that `traverse` carries, and the messages of agent and helper:
//! decoding and encoding again gives the same bytes.
#![no_main]

use isthmus_raw::Syn;
use isthmus_raw::message::{Request, decode_reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(syn) = Syn::parse(bytes) {
        assert_eq!(Syn::parse(&syn.to_bytes()), Ok(syn));
    }
    if let Ok((id, request)) = Request::decode(bytes)
        && bytes.len() <= isthmus_raw::message::MAX_LEN
    {
        assert_eq!(request.encode(id), bytes);
    }
    let _ = decode_reply(bytes);
});

//! What processes of one machine exchange.

use isthmus_raw::Syn;
use isthmus_raw::message::{MAX_LEN, Request as RawRequest, decode_reply};
use isthmus_wire::settings::Settings;
use isthmus_wire::shim::{REPLY_LEN, REQUEST_LEN, Reply, Request};
use isthmus_wire::upgrade;

/// Settings files of the shim: what is read means the same when written and read again.
pub fn settings(bytes: &[u8]) {
    if let Ok(settings) = Settings::decode(crate::text(bytes)) {
        assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
    }
}

/// Requests of shims and replies of agents: what is read means the same when written and read
/// again.
pub fn shim(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<REQUEST_LEN>()
        && let Ok(request) = Request::decode(bytes)
    {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Some(bytes) = bytes.first_chunk::<REPLY_LEN>()
        && let Ok(reply) = Reply::decode(bytes)
    {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

/// Segments that `traverse` carries, and messages of agent and helper. A segment that is read means
/// the same when written and read again. A request gives the same bytes.
pub fn syn(bytes: &[u8]) {
    if let Ok(syn) = Syn::parse(bytes) {
        assert_eq!(Syn::parse(&syn.to_bytes()), Ok(syn));
    }
    if let Ok((id, request)) = RawRequest::decode(bytes)
        && bytes.len() <= MAX_LEN
    {
        assert_eq!(request.encode(id), bytes);
    }
    let _ = decode_reply(bytes);
}

/// What a service hands to the program that takes its place, and that program's answer beforehand.
/// What is decoded gives the same bytes when encoded again.
pub fn upgrade(bytes: &[u8]) {
    if let Ok(state) = upgrade::State::decode(bytes) {
        assert_eq!(state.encode().as_deref(), Ok(bytes));
    }
    let line = crate::text(bytes);
    if let Ok(versions) = upgrade::read_answer(line) {
        assert_eq!(format!("isthmus upgrade {}-{}", versions.start(), versions.end()), line);
    }
}

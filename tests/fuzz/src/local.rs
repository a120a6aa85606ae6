//! What processes of one node exchange.

use isthmus_raw::Syn;
use isthmus_raw::message::{MAX_LEN, Request as RawRequest, decode_reply};
use isthmus_wire::settings::Settings;
use isthmus_wire::shim::{REPLY_LEN, REQUEST_LEN, Reply, Request};

/// The shim's settings file: what is read, means the same when written.
pub fn settings(bytes: &[u8]) {
    if let Ok(settings) = Settings::decode(crate::text(bytes)) {
        assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
    }
}

/// Requests of shims and replies of agents: what is read, means the same when
/// written and read again.
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

/// The segment that `traverse` carries, and the messages of agent and helper:
/// decoding and encoding again gives the same.
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

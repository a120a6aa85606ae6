//! Requests of shims and replies of agents: what is read, means the same when
//! written and read again.
#![no_main]

use isthmus_wire::shim::{REPLY_LEN, REQUEST_LEN, Reply, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
});

//! Identities out of certificates, and their URIs: what is read, reads the
//! same when written.
#![no_main]

use isthmus_net::Identity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Identity::from_certificate(bytes);
    if let Ok(identity) =
        std::str::from_utf8(bytes).map_err(drop).and_then(|uri| Identity::from_uri(uri).map_err(drop))
    {
        assert_eq!(Identity::from_uri(&identity.uri()).ok(), Some(identity));
    }
});

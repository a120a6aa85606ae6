//! The secrets of a run's helpers, all made of one.

use isthmus_service::mac::Secret;
use isthmus_wire::preamble::Mac;

/// By these the helpers of one run know each other and each other's files. No other process has
/// them, so an HMAC serves as well as a hash.
pub(super) struct Keys {
    /// What a helper shows to one that offers files.
    pub greeting: Mac,
    /// Signs manifests.
    pub manifest: Secret,
    /// Signs blocks of files.
    pub blocks: Secret,
}

impl Keys {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        let secret = Secret::new(secret);
        Self {
            greeting: secret.sign(b"greeting"),
            manifest: Secret::new(secret.sign(b"manifest")),
            blocks: Secret::new(secret.sign(b"blocks")),
        }
    }
}

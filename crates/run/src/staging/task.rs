//! What `isthmus run` and its helpers on nodes tell each other: lines of JSON.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

/// Longest line of either party.
pub(super) const LINE_MAX: usize = 1 << 20;

/// The first line of a helper's input. The end of the input ends the helper.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    /// The secret of this run's helpers.
    pub secret: [u8; 32],
    pub work: Work,
}

/// What a helper is to do before it offers files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Work {
    /// Read what is at these paths. With `may_lack` some may be missing.
    Offer { paths: Vec<String>, may_lack: bool },
    /// Take what another helper offers of these paths, and write it to paths that end with `suffix`.
    Take { from: SocketAddrV4, paths: Vec<String>, suffix: String },
}

/// A line of a helper's output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Said {
    /// So many bytes of files were read.
    Read { bytes: u64 },
    /// So many of the bytes that were asked for are there.
    Taken { bytes: u64, of: u64 },
    /// All is there, and is offered.
    Offers(Offers),
    /// It can't go on, and waits for its end.
    Failed { why: String },
}

/// What a helper offers to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offers {
    /// The TCP port.
    pub port: u16,
    /// HMAC of the manifest: helpers with the same files have the same.
    pub digest: [u8; 32],
    /// How many files, directories and symbolic links it offers.
    pub entries: u64,
    /// How many of these are files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many files it has written.
    pub written: u64,
    /// How many bytes it has received for that.
    pub received: u64,
}

//! Bounds of texts, lists, messages and pages of the control plane.
//!
//! A gateway checks the messages of its agents against these bounds. The broker
//! checks those of its gateways and relays. Texts and lists for users are cut
//! ([`cut_seen`], [`cut_job`], [`cut_path`]). A message that exceeds another bound is
//! refused with [`TooLarge`], which its sender receives. So no agent can make an
//! answer to others larger than [`MESSAGE_BYTES`].

/// Most bytes of a message to a broker or gateway, and of an answer. A record and a page fit, with
/// a reserve. tonic refuses more than 4 MiB.
pub const MESSAGE_BYTES: usize = 256 * 1024;
/// Most bytes of a request for a certificate, which any host may send. A token and a signing
/// request take some 2 KiB.
pub const ENROLMENT_BYTES: usize = 16 * 1024;
/// Most bytes of the records of a page. The largest record, a job, takes 162 KiB (see
/// [`JOB_NODES_BYTES`]). So each record fits a page, and a page fits a message.
pub const PAGE_BYTES: usize = 192 * 1024;
/// Most records of a page: 192 bytes each on average.
pub const PAGE_RECORDS: usize = 1024;
/// Most entries of a message of revocations, and most members on a page: at most 240 bytes each.
pub const REVOCATIONS: usize = 512;
/// Most names in a request for records: 256 × at most 130 bytes are 33 KiB.
pub const NAMES: usize = 256;
/// Most bytes of a text: a grid name has 127, a host name with port 259 at most.
pub const TEXT: usize = 263;
/// Most bytes of a text for users that names several failures.
pub const LONG_TEXT: usize = 2048;

/// Most nodes of a site: more than the 9,408 of the largest machine of today. At about 2.5 KiB each
/// they take 40 MiB at the broker.
pub const NODES_PER_SITE: usize = 16 * 1024;
/// Most nodes of an owner, at all sites: four sites of the largest size.
pub const NODES_PER_OWNER: usize = 4 * NODES_PER_SITE;
/// Most gateways of a site that the broker remembers: 16 × 1.2 KiB are 19 KiB of a site's record.
pub const GATEWAYS_PER_SITE: usize = 16;
/// Most relays of a grid that the broker remembers.
pub const RELAYS: usize = 256;
/// Most gateways that relay.
pub const RELAYING_GATEWAYS: usize = 128;
/// Most relays in the directory: as many as an agent probes.
pub const DIRECTORY_RELAYS: usize = 32;
/// Most gateways in the directory: as many as an agent probes, and those of the agent's own site,
/// which it doesn't probe. With the relays, 80 × at most 400 bytes are 31 KiB.
pub const DIRECTORY_GATEWAYS: usize = DIRECTORY_RELAYS + GATEWAYS_PER_SITE;

/// Most relays, and most gateways, that a node reports: as many as the directory has. 2 × 48 × at
/// most 800 bytes are 75 KiB of a node's record.
pub const SIGHTS: usize = DIRECTORY_GATEWAYS;
/// Most addresses in what an agent signs. An agent signs the address that its site sees, the
/// address declared as let in, and the measured address.
pub const CONTACT_ADDRESSES: usize = 4;
/// Most bytes of what an agent signs about itself, without certificates and signature. A signed
/// contact with 4 certificates takes at most 11 KiB, and usually 1.3.
pub const CONTACT_BYTES: usize = 2048;
/// Most bytes of a certificate in a signed contact. A certificate of isthmus has some 600.
pub const CERTIFICATE_BYTES: usize = 2048;
/// Most certificates of a chain, from a party's own up to the authority's.
pub const CERTIFICATES: usize = 4;
/// Most bytes of a signature: ECDSA P-256 in ASN.1 takes 72.
pub const SIGNATURE_BYTES: usize = 80;
/// Most bytes of a pilot's id.
pub const PILOT_ID_BYTES: usize = 16;
/// Most hosts whose ports a node reports: agents try two.
pub const EGRESS_HOSTS: usize = 8;
/// Most ports of a host that a node reports as answered, or as silent: agents try five.
pub const EGRESS_PORTS: usize = 16;
/// Most bytes of a [`proto::NodesSeen`](crate::proto::NodesSeen): the largest findings of a node
/// fit.
pub const NODES_SEEN_BYTES: usize = 128 * 1024;

/// Most running jobs of a site. An owner gets as many of them as [`leaves_room`] for others.
pub const JOBS_PER_SITE: usize = 1024;
/// Most running jobs of an owner, at all sites.
pub const JOBS_PER_OWNER: usize = 1024;
/// Most running jobs that a node is the head of.
pub const JOBS_PER_NODE: usize = 256;
/// Most bytes of the node names in a job's report: 4,000 names of 13 letters. With the connections
/// that is 160 KiB, and the rest of a job's record takes 2 KiB.
pub const JOB_NODES_BYTES: usize = 64 * 1024;
/// Most bytes of the connections in a job's report: 1,000 pairs of about 96 bytes.
pub const JOB_JOINED_BYTES: usize = 96 * 1024;
/// Most steps in the report of a measurement: 32 × 2 KiB are 64 KiB.
pub const PATH_STEPS: usize = 32;

use crate::text::UnsafeText;

/// A field exceeds its bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {got} is too many, at most {limit} may be sent")]
pub struct TooLarge {
    /// The field with its unit: "bytes of an address".
    pub what: &'static str,
    /// The size of the field.
    pub got: usize,
    /// The largest size that is allowed.
    pub limit: usize,
}

/// Why a message isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// A field exceeds its bound.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A text has a character that a terminal would obey or hide.
    #[error(transparent)]
    UnsafeText(#[from] UnsafeText),
}

/// Checks that `got` is within `limit`; `what` names the field with its unit.
///
/// # Errors
/// [`TooLarge`] if `got` is more.
pub fn within(what: &'static str, got: usize, limit: usize) -> Result<(), TooLarge> {
    if got > limit { Err(TooLarge { what, got, limit }) } else { Ok(()) }
}

/// Whether a holder that has `has` of `capacity` places may take another. It may only while more
/// places are free than it has. So a single greedy holder gets half of the places, and two get a
/// third each. Whoever comes next finds a place. This is the dynamic threshold of Choudhury and
/// Hahne ("Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
/// Transactions on Networking 6(2), 1998).
pub fn leaves_room(has: usize, used: usize, capacity: usize) -> bool {
    has < capacity.saturating_sub(used)
}

/// Cuts a text to at most `limit` bytes, between two characters.
pub fn cut_text(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
    }
}

#[cfg(feature = "grpc")]
pub use messages::{Bounded, clean, cut_job, cut_path, cut_seen, encoded_len};

#[cfg(feature = "grpc")]
mod messages;

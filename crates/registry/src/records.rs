//! The records that the brokers of a grid share: their keys and values.
//!
//! The broker keeps them in its store, and alone writes them. The registry folds those that [`read`]
//! returns.
//!
//! | key | value | kept |
//! |---|---|---|
//! | `addresses/NODE.SITE` | virtual address | on disk |
//! | `blocks/NUMBER` | the site that the /24 block belongs to | on disk |
//! | `tokens/ID` | a used join token, in the broker's own layout | on disk |
//! | `members/NAME` | the party that joined under a name last, in the broker's own layout | on disk |
//! | `revoked/URI` | revoked certificates of an identity: `proto::Revocation` | on disk, until those have ended |
//! | `gateways/SITE/NAME` | [`GatewayRecord`] | with the gateway's attachment |
//! | `relays/NAME` | [`RelayRecord`] | with the relay's attachment |
//! | `nodes/SITE/NODE` | [`NodeRecord`] | with the attachment of the gateway that announced it |
//! | `jobs/ID` | a running job: [`JobRecord`] | with the attachment of the gateway that reported it last |

use std::fmt;

use isthmus_wire::{GridName, JobId, Label, RelayName, VirtualAddress, proto};
use prost::Message;

const ADDRESSES: &str = "addresses/";
const BLOCKS: &str = "blocks/";
/// What the keys of used join tokens begin with.
pub const TOKENS: &str = "tokens/";
/// What the keys of members begin with.
pub const MEMBERS: &str = "members/";
/// What the keys of revocations begin with.
pub const REVOKED: &str = "revoked/";
const GATEWAYS: &str = "gateways/";
const RELAYS: &str = "relays/";
const NODES: &str = "nodes/";
const JOBS: &str = "jobs/";

/// Counts the transactions of a store that changed something, from 1.
pub type Revision = u64;

/// Number of a /24 block within the virtual range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u16);

/// The right of some records to exist; never granted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The record of an attached gateway.
#[derive(Clone, PartialEq, Message)]
pub struct GatewayRecord {
    /// What the gateway said of itself when it attached.
    #[prost(message, required, tag = "1")]
    pub up: proto::GatewayUp,
    /// 32 bytes that sign tickets for the gateway.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Whether the gateway's port outside is reached; `None` if it was never tried.
    #[prost(message, optional, tag = "3")]
    pub outside_reach: Option<proto::Reach>,
    /// How a NAT maps the ports that the gateway dials from.
    #[prost(enumeration = "proto::Mapping", tag = "4")]
    pub mapping: i32,
}

/// The record of an attached relay.
#[derive(Clone, PartialEq, Message)]
pub struct RelayRecord {
    /// What the relay said of itself when it attached.
    #[prost(message, required, tag = "1")]
    pub up: proto::RelayUp,
    /// 32 bytes that sign tickets for the relay.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// The record of a node, as its gateway announced it.
#[derive(Clone, PartialEq, Message)]
pub struct NodeRecord {
    /// The node's announcement, verified by what its agent has signed.
    #[prost(message, required, tag = "1")]
    pub contact: proto::NodeUp,
    /// Name of the gateway that announced the node last.
    #[prost(string, tag = "2")]
    pub gateway: String,
    /// Whether that gateway reported that the node's agent is gone.
    #[prost(bool, tag = "3")]
    pub down: bool,
}

/// The record of a running job, as the gateway of its head's site reported it.
#[derive(Clone, PartialEq, Message)]
pub struct JobRecord {
    /// The site of the job's head.
    #[prost(string, tag = "1")]
    pub site: String,
    /// The report of the job's head.
    #[prost(message, required, tag = "2")]
    pub report: proto::JobReport,
}

/// A record that the registry folds. `record` is `None` if it was deleted.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "each is taken in as soon as it is read")]
pub enum Fact {
    /// A node has got a virtual address.
    Address {
        /// The node.
        node: GridName,
        /// The node's address, which it keeps for ever.
        address: VirtualAddress,
    },
    /// A block of addresses was assigned to a site, or an address of the block to a node.
    Block {
        /// The block.
        block: Block,
        /// The site that the block belongs to.
        site: Label,
        /// The revision that wrote the block's record last.
        revision: Revision,
    },
    /// A gateway is attached, or isn't any more.
    Gateway {
        /// The gateway's site.
        site: Label,
        /// The gateway's name, which is unique in its site.
        name: Label,
        /// The gateway's record, with the lease of its attachment.
        record: Option<(Lease, GatewayRecord)>,
    },
    /// A relay is attached, or isn't any more.
    Relay {
        /// The relay's name.
        name: RelayName,
        /// The relay's record, with the lease of its attachment.
        record: Option<(Lease, RelayRecord)>,
    },
    /// A gateway announced a node, or is no longer attached.
    Node {
        /// The node.
        node: GridName,
        /// The node's record.
        record: Option<NodeRecord>,
    },
    /// A job runs, or has ended.
    Job {
        /// The job.
        job: JobId,
        /// The site of the job's head, and the report of the head.
        record: Option<(Label, proto::JobReport)>,
    },
    /// Certificates of an identity are revoked, or have ended since.
    Revoked {
        /// The URI of the identity, without owner.
        identity: String,
        /// Until when revoked certificates were issued, and when the last of them ends.
        record: Option<proto::Revocation>,
    },
}

/// A record whose key or value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the broker's store holds a record {0:?} that can't be read; it was not written by isthmus")]
pub struct Unreadable(String);

/// Reads a record; `None` for a kind of record that the registry doesn't fold. Without `value` the
/// record was deleted.
///
/// # Errors
/// If the key or the value isn't one that isthmus writes.
pub fn read(
    key: &str,
    value: Option<&[u8]>,
    lease: Option<Lease>,
    revision: Revision,
) -> Result<Option<Fact>, Unreadable> {
    let Some((kind, _)) = key.split_once('/') else { return Ok(None) };
    let fact = match (format!("{kind}/").as_str(), value) {
        (ADDRESSES, Some(value)) => read_address(key, value),
        (BLOCKS, Some(value)) => read_block(key, value, revision),
        (GATEWAYS, value) => read_gateway(key, value, lease),
        (RELAYS, value) => read_relay(key, value, lease),
        (NODES, value) => read_node(key, value),
        (JOBS, value) => read_job(key, value),
        (REVOKED, value) => read_revoked(key, value),
        _ => return Ok(None),
    };
    fact.map(Some).ok_or_else(|| Unreadable(key.to_owned()))
}

fn read_address(key: &str, value: &[u8]) -> Option<Fact> {
    let node = key.strip_prefix(ADDRESSES)?.parse().ok()?;
    let address = VirtualAddress::new(std::str::from_utf8(value).ok()?.parse().ok()?)?;
    Some(Fact::Address { node, address })
}

fn read_block(key: &str, value: &[u8], revision: Revision) -> Option<Fact> {
    let block = Block(key.strip_prefix(BLOCKS)?.parse().ok()?);
    Some(Fact::Block { block, site: std::str::from_utf8(value).ok()?.parse().ok()?, revision })
}

fn read_gateway(key: &str, value: Option<&[u8]>, lease: Option<Lease>) -> Option<Fact> {
    let (site, name) = key.strip_prefix(GATEWAYS)?.split_once('/')?;
    let record = match value {
        Some(value) => Some((lease?, GatewayRecord::decode(value).ok()?)),
        None => None,
    };
    Some(Fact::Gateway { site: site.parse().ok()?, name: name.parse().ok()?, record })
}

fn read_relay(key: &str, value: Option<&[u8]>, lease: Option<Lease>) -> Option<Fact> {
    let record = match value {
        Some(value) => Some((lease?, RelayRecord::decode(value).ok()?)),
        None => None,
    };
    Some(Fact::Relay { name: key.strip_prefix(RELAYS)?.parse().ok()?, record })
}

fn read_node(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let (site, node) = key.strip_prefix(NODES)?.split_once('/')?;
    let node = GridName { node: node.parse().ok()?, site: site.parse().ok()? };
    let record = match value {
        Some(value) => Some(NodeRecord::decode(value).ok()?),
        None => None,
    };
    Some(Fact::Node { node, record })
}

fn read_revoked(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let record = match value {
        Some(value) => Some(proto::Revocation::decode(value).ok()?),
        None => None,
    };
    Some(Fact::Revoked { identity: key.strip_prefix(REVOKED)?.to_owned(), record })
}

fn read_job(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let job = key.strip_prefix(JOBS)?.parse().ok()?;
    let record = match value {
        Some(value) => {
            let JobRecord { site, report } = JobRecord::decode(value).ok()?;
            Some((site.parse().ok()?, report))
        }
        None => None,
    };
    Some(Fact::Job { job, record })
}

/// The key of a gateway's record.
pub fn gateway_key(site: &Label, name: &Label) -> String {
    format!("{GATEWAYS}{site}/{name}")
}

/// The key of a relay's record.
pub fn relay_key(name: &RelayName) -> String {
    format!("{RELAYS}{name}")
}

/// The key of a node's record.
pub fn node_key(node: &GridName) -> String {
    format!("{NODES}{}/{}", node.site, node.node)
}

/// The key of a job's record.
pub fn job_key(job: &JobId) -> String {
    format!("{JOBS}{job}")
}

/// The key of a node's virtual address; `node` is a grid name.
pub fn address_key(node: &str) -> String {
    format!("{ADDRESSES}{node}")
}

/// The key of a block of addresses, by its number.
pub fn block_key(block: u16) -> String {
    format!("{BLOCKS}{block}")
}

/// The key of a used join token, by the token's id.
pub fn token_key(id: [u8; 16]) -> String {
    format!("{TOKENS}{:032x}", u128::from_be_bytes(id))
}

/// The key of a member, by its name.
pub fn member_key(name: &str) -> String {
    format!("{MEMBERS}{name}")
}

/// The key of a revocation; `identity` is the URI without owner.
pub fn revoked_key(identity: &str) -> String {
    format!("{REVOKED}{identity}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_or_refused() {
        let job = JobRecord { site: "alpha".to_owned(), ..JobRecord::default() }.encode_to_vec();
        let node = NodeRecord { gateway: "a".to_owned(), ..NodeRecord::default() }.encode_to_vec();
        for (key, value, want) in [
            ("addresses/n1.alpha", &b"240.64.1.1"[..], Ok(true)),
            ("blocks/7", b"alpha", Ok(true)),
            ("nodes/alpha/n1", &node, Ok(true)),
            ("jobs/0123456789abcdef0123456789abcdef", &job, Ok(true)),
            ("tokens/07", b"x", Ok(false)),
            ("of a later version", b"x", Ok(false)),
            ("addresses/n1", b"240.64.1.1", Err(())),
            ("addresses/n1.alpha", b"10.0.0.1", Err(())),
            ("blocks/x", b"alpha", Err(())),
            ("nodes/alpha/n1", b"\xff", Err(())),
            ("relays/r1", b"", Err(())),
            ("jobs/07", &job, Err(())),
            ("jobs/0123456789abcdef0123456789abcdef", b"", Err(())),
        ] {
            let read = read(key, Some(value), None, 1).map(|fact| fact.is_some()).map_err(drop);
            assert_eq!(read, want, "{key}");
        }
        let gone = read("nodes/alpha/n1", None, None, 1);
        assert!(matches!(gone, Ok(Some(Fact::Node { record: None, .. }))), "{gone:?}");
    }
}

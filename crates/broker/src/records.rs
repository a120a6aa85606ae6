//! The broker's records in the [store](crate::store): their keys and values.
//!
//! | key | value | kept |
//! |---|---|---|
//! | `addresses/NODE.SITE` | virtual address | on disk |
//! | `blocks/NUMBER` | the site that the /24 block belongs to | on disk |
//! | `tokens/ID` | a used join token: [`UsedToken`](crate::members::UsedToken) | on disk |
//! | `members/NAME` | the party that joined under a name last: [`MemberRecord`](crate::members::MemberRecord) | on disk |
//! | `revoked/URI` | revoked certificates of an identity: `proto::Revocation` | on disk, until those have ended |
//! | `gateways/SITE/NAME` | [`GatewayRecord`] | with the gateway's attachment |
//! | `relays/NAME` | [`RelayRecord`] | with the relay's attachment |
//! | `nodes/SITE/NODE` | [`NodeRecord`] | with the attachment of the gateway that announced it |
//! | `jobs/ID` | a running job: [`JobRecord`] | with the attachment of the gateway that reported it last |

use isthmus_wire::{GridName, JobId, Label, VirtualAddress, proto};
use prost::Message;

use crate::addresses::Block;
use crate::store::{Lease, Revision};

const ADDRESSES: &str = "addresses/";
const BLOCKS: &str = "blocks/";
pub(crate) const TOKENS: &str = "tokens/";
pub(crate) const MEMBERS: &str = "members/";
pub(crate) const REVOKED: &str = "revoked/";
const GATEWAYS: &str = "gateways/";
const RELAYS: &str = "relays/";
const NODES: &str = "nodes/";
const JOBS: &str = "jobs/";

/// The record of an attached gateway.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GatewayRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) up: proto::GatewayUp,
    /// 32 bytes that sign tickets for the gateway.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    /// Whether the gateway's port outside is reached; `None` if it was never tried.
    #[prost(message, optional, tag = "3")]
    pub(crate) outside_reach: Option<proto::Reach>,
    /// How a NAT maps the ports that the gateway dials from.
    #[prost(enumeration = "proto::Mapping", tag = "4")]
    pub(crate) mapping: i32,
}

/// The record of an attached relay.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RelayRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) up: proto::RelayUp,
    /// 32 bytes that sign tickets for the relay.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

/// The record of a node, as its gateway announced it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) contact: proto::NodeUp,
    /// Name of the gateway that announced the node last.
    #[prost(string, tag = "2")]
    pub(crate) gateway: String,
    /// Whether that gateway reported that the node's agent is gone.
    #[prost(bool, tag = "3")]
    pub(crate) down: bool,
}

/// The record of a running job, as the gateway of its head's site reported it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobRecord {
    /// The site of the job's head.
    #[prost(string, tag = "1")]
    pub(crate) site: String,
    #[prost(message, required, tag = "2")]
    pub(crate) report: proto::JobReport,
}

/// A record that the registry folds. `record` is `None` if it was deleted.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "each is taken in as soon as it is read")]
pub(crate) enum Fact {
    Address {
        node: GridName,
        address: VirtualAddress,
    },
    Block {
        block: Block,
        site: Label,
        revision: Revision,
    },
    Gateway {
        site: Label,
        name: Label,
        record: Option<(Lease, GatewayRecord)>,
    },
    Relay {
        name: Label,
        record: Option<(Lease, RelayRecord)>,
    },
    Node {
        node: GridName,
        record: Option<NodeRecord>,
    },
    Job {
        job: JobId,
        record: Option<(Label, proto::JobReport)>,
    },
    /// Revoked certificates of an identity; `identity` is its URI without owner.
    Revoked {
        identity: String,
        record: Option<proto::Revocation>,
    },
}

/// A record whose key or value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the broker's store holds a record {0:?} that can't be read; it was not written by isthmus")]
pub struct Unreadable(String);

/// Reads a record; `None` for a kind of record that the registry doesn't fold.
pub(crate) fn read(
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

pub(crate) fn gateway_key(site: &Label, name: &Label) -> String {
    format!("{GATEWAYS}{site}/{name}")
}

pub(crate) fn relay_key(name: &Label) -> String {
    format!("{RELAYS}{name}")
}

pub(crate) fn node_key(node: &GridName) -> String {
    format!("{NODES}{}/{}", node.site, node.node)
}

pub(crate) fn job_key(job: &JobId) -> String {
    format!("{JOBS}{job}")
}

pub(crate) fn address_key(node: &str) -> String {
    format!("{ADDRESSES}{node}")
}

pub(crate) fn block_key(block: u16) -> String {
    format!("{BLOCKS}{block}")
}

pub(crate) fn token_key(id: [u8; 16]) -> String {
    format!("{TOKENS}{:032x}", u128::from_be_bytes(id))
}

pub(crate) fn member_key(name: &str) -> String {
    format!("{MEMBERS}{name}")
}

/// The key of a revocation; `identity` is the URI without owner.
pub(crate) fn revoked_key(identity: &str) -> String {
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

//! The form that stores of version 0.1.0 have on disk. It is converted once.
//!
//! | table | key → value |
//! |---|---|
//! | `address-blocks` | block number → site |
//! | `nodes` | grid name → virtual address |
//! | `used-tokens` | token id → expiry, SHA-256 of the signing request |
//! | `members` | TLS name → identity URI |

use isthmus_net::Identity;
use prost::Message as _;
use redb::{ReadableTable, TableDefinition, TableHandle, WriteTransaction};

use super::embedded::RECORDS;
use crate::records;

const BLOCKS: TableDefinition<u16, &str> = TableDefinition::new("address-blocks");
const NODES: TableDefinition<&str, u32> = TableDefinition::new("nodes");
const TOKENS: TableDefinition<[u8; 16], (u64, [u8; 32])> = TableDefinition::new("used-tokens");
const MEMBERS: TableDefinition<&str, &str> = TableDefinition::new("members");

/// A table of a former name and another type. Because of it, brokers of version 0.1.0
/// end with an error and don't assign addresses anew.
const BARRIER: TableDefinition<&str, &str> = TableDefinition::new("address-blocks");

/// Moves the records of a broker of version 0.1.0 into [`RECORDS`].
pub(super) fn convert(write: &WriteTransaction) -> Result<(), redb::Error> {
    // `nodes` is deleted below, so this runs only once.
    if !write.list_tables()?.any(|table| table.name() == NODES.name()) {
        return Ok(());
    }
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for row in write.open_table(BLOCKS)?.iter()? {
        let (block, site) = row?;
        all.push((records::block_key(block.value()), site.value().into()));
    }
    for row in write.open_table(NODES)?.iter()? {
        let (node, address) = row?;
        let address = std::net::Ipv4Addr::from(address.value());
        all.push((records::address_key(node.value()), address.to_string().into()));
    }
    for row in write.open_table(TOKENS)?.iter()? {
        let (id, used) = row?;
        let (expiry_unix_seconds, request_sha256) = used.value();
        let used = crate::members::UsedToken { expiry_unix_seconds, request_sha256, closed: false };
        all.push((records::token_key(id.value()), used.encode()));
    }
    for row in write.open_table(MEMBERS)?.iter()? {
        let (name, uri) = row?;
        let Ok(identity) = Identity::from_uri(uri.value()) else { continue };
        let record = crate::members::MemberRecord::new(&identity, 0, 0);
        all.push((records::member_key(name.value()), record.encode_to_vec()));
    }
    let mut table = write.open_table(RECORDS)?;
    for (key, value) in &all {
        table.insert(key.as_str(), value.as_slice())?;
    }
    write.delete_table(BLOCKS)?;
    write.delete_table(NODES)?;
    write.delete_table(TOKENS)?;
    write.delete_table(MEMBERS)?;
    write.open_table(BARRIER)?.insert("moved to", RECORDS.name())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use redb::Database;

    use super::*;
    use crate::store::{Embedded, Store as _};

    #[tokio::test]
    async fn a_store_of_a_former_version_is_converted_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        {
            let database = Database::create(&path).unwrap();
            let write = database.begin_write().unwrap();
            write.open_table(BLOCKS).unwrap().insert(1, "alpha").unwrap();
            write.open_table(NODES).unwrap().insert("n1.alpha", 0xf040_0101).unwrap();
            write.open_table(TOKENS).unwrap().insert([7; 16], (100, [8; 32])).unwrap();
            write.open_table(MEMBERS).unwrap().insert("n1.alpha", "isthmus:///agent/alpha/n1/anna").unwrap();
            write.commit().unwrap();
        }
        for _ in 0..2 {
            let store = Embedded::open(&path).unwrap();
            let all = store.range("").await.unwrap().records;
            let keys: Vec<&str> = all.iter().map(|(key, _)| key.as_ref()).collect();
            let token = records::token_key([7; 16]);
            assert_eq!(keys, ["addresses/n1.alpha", "blocks/1", "members/n1.alpha", &token]);
            let values: Vec<_> = all[..2].iter().map(|(_, record)| &*record.value).collect();
            assert_eq!(values, [&b"240.64.1.1"[..], b"alpha"]);
            let member = crate::members::MemberRecord::decode(&*all[2].1.value).unwrap();
            assert_eq!(member.identity, "isthmus:///agent/alpha/n1/anna");
            let request_sha256 = [8; 32];
            let used = crate::members::UsedToken { expiry_unix_seconds: 100, request_sha256, closed: false };
            assert_eq!(crate::members::UsedToken::decode(&all[3].1.value), Some(used));
        }
        let database = Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        assert!(write.open_table(BLOCKS).is_err(), "a broker of version 0.1.0 must not start");
    }
}

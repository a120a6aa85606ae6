//! Pages of records: a list is sent in parts. A page begins after the record that its
//! token names. It ends where its bytes or records are used up.

use isthmus_wire::bounds::{PAGE_BYTES, PAGE_RECORDS, encoded_len};
use isthmus_wire::{GridName, proto};

/// Why a page token is none that a list of this grid has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The token is no key.
    #[error("this page token is not of this grid")]
    NoKey,
    /// The token is no key of a node.
    #[error("this page token is not one of a list of nodes")]
    NoNode,
}

/// The start of a page, and the room that is left on it.
#[derive(Debug)]
pub struct Page {
    /// Key of the last record on the page before; empty for the first page.
    after: String,
    records: usize,
    bytes: usize,
    next: String,
}

impl Page {
    /// The page that a request is for.
    ///
    /// # Errors
    /// [`BadToken::NoKey`] if its token is no key.
    pub fn new(request: &proto::ListRequest) -> Result<Self, BadToken> {
        let after = String::from_utf8(request.page_token.clone());
        let wanted = usize::try_from(request.page_size).unwrap_or(PAGE_RECORDS);
        Ok(Self {
            after: after.map_err(|_| BadToken::NoKey)?,
            records: if wanted == 0 { PAGE_RECORDS } else { wanted.min(PAGE_RECORDS) },
            bytes: PAGE_BYTES,
            next: String::new(),
        })
    }

    /// The node after which a page of nodes begins; `None` for the first page. The caller begins
    /// there: [`take`](Self::take) skips no record from here on.
    ///
    /// # Errors
    /// [`BadToken::NoNode`] if the page's token names no node.
    pub fn after_node(&mut self) -> Result<Option<GridName>, BadToken> {
        let after = std::mem::take(&mut self.after);
        (!after.is_empty()).then(|| node_of_key(&after).ok_or(BadToken::NoNode)).transpose()
    }

    /// Takes as many records as the page has room for. They must come in the order of their keys,
    /// which is stable. If some are left, there is a [`next`](Self::next) page.
    pub fn take<M: prost::Message>(&mut self, records: impl Iterator<Item = (String, M)>) -> Vec<M> {
        let mut taken = Vec::new();
        let mut last = String::new();
        for (key, record) in records.filter(|(key, _)| self.after.is_empty() || *key > self.after) {
            let bytes = encoded_len(&record) + 4;
            if taken.len() >= self.records || (bytes > self.bytes && !taken.is_empty()) {
                self.next = last;
                break;
            }
            self.bytes = self.bytes.saturating_sub(bytes);
            taken.push(record);
            last = key;
        }
        taken
    }

    /// The token of the next page; empty if this page is the last.
    pub fn next(self) -> Vec<u8> {
        self.next.into_bytes()
    }
}

/// The key of a node. Keys sort as site and node do, because a blank sorts before all characters of
/// names.
pub fn key_of_node(name: &GridName) -> String {
    format!("{} {}", name.site, name.node)
}

fn node_of_key(key: &str) -> Option<GridName> {
    let (site, node) = key.split_once(' ')?;
    Some(GridName { node: node.parse().ok()?, site: site.parse().ok()? })
}

//! A job's connections at one node: knocks, and sockets that were handed over.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard};

use isthmus_carry::trunk::Running;
use isthmus_service::lock;
use isthmus_wire::Nonce;
use tokio::sync::watch;

use crate::accepting::knock::Knocks;
use crate::carrying::names::Names;

/// Most preambles that one job may receive at one node, 16 bytes each. It bounds memory, and is far
/// beyond any job's number of connections.
const NONCES_MAX: usize = 1 << 22;
/// Most handed-over sockets that are kept, 8 bytes each. At this number every socket
/// counts as handed over.
const HANDED_OVER_MAX: usize = 1 << 20;

/// The smallest number of streams at which ended ones are looked for.
const STREAMS_LEAST: usize = 1024;

/// A job's connections at one node.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// Knocks that are not fetched yet.
    pub knocks: Knocks,
    names: Mutex<Names>,
    seen: Mutex<HashSet<Nonce>>,
    /// The inode numbers of sockets that were handed over.
    handed_over: Mutex<HashSet<u64>>,
    /// Streams of trunks that carry the job's connections.
    streams: Mutex<Streams>,
    /// Ports of listeners whose processes can't fetch connections: the agent carries those.
    kept: watch::Sender<HashSet<u16>>,
}

#[derive(Debug, Default)]
struct Streams {
    /// Each with the virtual address at its other end.
    running: Vec<(Ipv4Addr, Running)>,
    /// How many streams there must be before the ended ones are forgotten.
    full: usize,
    /// Whether the job has ended here.
    ended: bool,
}

impl Sockets {
    /// Whether this nonce is new. Keeps it, and refuses all once there are too many.
    pub(crate) fn first_use(&self, nonce: Nonce) -> bool {
        let mut seen = lock(&self.seen);
        seen.len() < NONCES_MAX && seen.insert(nonce)
    }

    /// The names of the ends of handed-over sockets.
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Notes that the process that listens at this port can't fetch its connections any more.
    pub(crate) fn keep(&self, port: u16) {
        self.kept.send_modify(|ports| {
            ports.insert(port);
        });
    }

    /// Whether the agent carries the connections to this port.
    pub(crate) fn keeps(&self, port: u16) -> bool {
        self.kept.borrow().contains(&port)
    }

    /// Waits until the agent must carry the connections to this port.
    pub(crate) async fn is_kept(&self, port: u16) {
        // Waiting can't fail: the sender lives as long as `self`.
        let _ = self.kept.subscribe().wait_for(|ports| ports.contains(&port)).await;
    }

    /// Records that this socket was handed over.
    pub(crate) fn handed_over(&self, inode: u64) {
        let mut sockets = lock(&self.handed_over);
        if sockets.len() < HANDED_OVER_MAX {
            sockets.insert(inode);
        }
    }

    /// Keeps a stream to or from a node at this virtual address, to be ended with the job. Its trunk may be cut for long, and its other end
    /// may be gone.
    pub(crate) fn carried(&self, peer: Ipv4Addr, stream: Running) {
        let mut streams = lock(&self.streams);
        if streams.ended {
            return stream.reset();
        }
        if streams.running.len() >= streams.full {
            streams.running.retain(|(_, stream)| !stream.is_over());
            streams.full = (2 * streams.running.len()).max(STREAMS_LEAST);
        }
        streams.running.push((peer, stream));
    }

    /// Resets the streams to and from these virtual addresses.
    pub(crate) fn end_with(&self, is_meant: impl Fn(Ipv4Addr) -> bool) {
        let mut streams = lock(&self.streams);
        let ending = streams.running.extract_if(.., |(peer, _)| is_meant(*peer));
        ending.for_each(|(_, stream)| stream.reset());
    }

    /// Resets all streams, and those that come from now on.
    pub(crate) fn end(&self) {
        let mut streams = lock(&self.streams);
        streams.ended = true;
        std::mem::take(&mut streams.running).iter().for_each(|(_, stream)| stream.reset());
    }

    /// Whether this socket was handed over.
    pub(crate) fn was_handed_over(&self, inode: u64) -> bool {
        let sockets = lock(&self.handed_over);
        sockets.len() == HANDED_OVER_MAX || sockets.contains(&inode)
    }
}

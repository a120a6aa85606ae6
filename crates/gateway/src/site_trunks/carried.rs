//! What this gateway has carried for the jobs of its nodes. Bytes are counted only for the node
//! that opens a stream. The other node's gateway counts the connections that come from there.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use isthmus_carry::Traffic;
use isthmus_service::lock;
use isthmus_wire::bounds::JOBS_PER_NODE;
use isthmus_wire::{JobId, Label, proto};

/// Most counts of a node, over all its jobs: as many as a message has room for.
const COUNTS: usize = 8192;

/// The bytes that a node has sent to another node and received from it.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    sent: AtomicU64,
    received: AtomicU64,
}

/// Counts a stream's bytes, at the initiator's gateway.
impl Traffic for Bytes {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
    }
}

/// The jobs of a node; the job that began last comes last.
type Jobs = Vec<(JobId, HashMap<Ipv4Addr, Arc<Bytes>>)>;

/// What was carried so far for each node's jobs.
#[derive(Debug, Default)]
pub(crate) struct Carried(Mutex<HashMap<Label, Jobs>>);

impl Carried {
    /// Where the bytes of a stream from a node for its job are counted. If the node has too many
    /// jobs, a job whose streams have ended makes room: its agent may have ended without asking. If
    /// there is no such job, nobody is told of these bytes.
    pub(super) fn count(&self, node: &Label, job: JobId, acceptor: Ipv4Addr) -> Arc<Bytes> {
        let mut all = lock(&self.0);
        let jobs = all.entry(node.clone()).or_default();
        let known = jobs.iter().find(|(id, _)| *id == job);
        if let Some(bytes) = known.and_then(|(_, acceptors)| acceptors.get(&acceptor)) {
            return bytes.clone();
        }
        let is_new = known.is_none();
        let counts: usize = jobs.iter().map(|(_, acceptors)| acceptors.len()).sum();
        if (is_new && jobs.len() >= JOBS_PER_NODE) || counts >= COUNTS {
            let over =
                |(id, acceptors): &(JobId, HashMap<_, _>)| *id != job && acceptors.values().all(is_over);
            match jobs.iter().position(over) {
                Some(place) => drop(jobs.remove(place)),
                None => return Arc::default(),
            }
        }
        let place = jobs.iter().position(|(id, _)| *id == job).unwrap_or_else(|| {
            jobs.push((job, HashMap::new()));
            jobs.len() - 1
        });
        jobs[place].1.entry(acceptor).or_default().clone()
    }

    /// What was carried for a job of a node. The counts are forgotten then.
    pub(crate) fn take(&self, node: &Label, job: JobId) -> Vec<proto::Carried> {
        let mut all = lock(&self.0);
        let Some(jobs) = all.get_mut(node) else { return Vec::new() };
        let Some(place) = jobs.iter().position(|(id, _)| *id == job) else { return Vec::new() };
        let (_, acceptors) = jobs.remove(place);
        if jobs.is_empty() {
            all.remove(node);
        }
        let carried = |(acceptor, bytes): (Ipv4Addr, Arc<Bytes>)| proto::Carried {
            acceptor: acceptor.into(),
            bytes_sent: bytes.sent.load(Relaxed),
            bytes_received: bytes.received.load(Relaxed),
        };
        acceptors.into_iter().map(carried).collect()
    }
}

/// Whether no open stream counts its bytes there.
fn is_over(bytes: &Arc<Bytes>) -> bool {
    Arc::strong_count(bytes) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(240, 64, 2, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(240, 64, 2, 2);

    fn label(text: &str) -> Label {
        text.parse().unwrap()
    }

    fn told(carried: &Carried, node: &str, job: u8) -> Vec<(Ipv4Addr, u64, u64)> {
        let found = carried.take(&label(node), JobId([job; 16])).into_iter();
        let mut found: Vec<_> =
            found.map(|one| (one.acceptor.into(), one.bytes_sent, one.bytes_received)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn bytes_are_counted_by_node_job_and_acceptor_until_they_are_told() {
        let carried = Carried::default();
        let count = |node: &str, job: u8, acceptor| carried.count(&label(node), JobId([job; 16]), acceptor);
        count("n1", 1, ONE).sent(5);
        let still_open = count("n1", 1, ONE);
        still_open.sent(2);
        count("n1", 1, OTHER).received(9);
        count("n1", 2, ONE).sent(100);
        count("n2", 1, ONE).sent(1000);
        assert_eq!(told(&carried, "n1", 1), [(ONE, 7, 0), (OTHER, 0, 9)]);
        still_open.sent(1);
        assert_eq!(told(&carried, "n1", 1), []);
        assert_eq!(told(&carried, "n1", 2), [(ONE, 100, 0)]);
        assert_eq!(told(&carried, "n2", 1), [(ONE, 1000, 0)]);
        assert!(lock(&carried.0).is_empty());
    }

    #[test]
    fn jobs_that_nobody_asks_for_make_room_once_their_streams_have_ended() {
        let carried = Carried::default();
        let node = label("n1");
        let id = |job: u64| JobId([job.to_ne_bytes(), [1; 8]].concat().try_into().unwrap());
        let open = carried.count(&node, JobId([255; 16]), ONE);
        for job in 0..1000 {
            carried.count(&node, id(job), ONE).sent(1);
        }
        assert_eq!(lock(&carried.0)[&node].len(), JOBS_PER_NODE);
        for acceptor in 0..20_000_u32 {
            carried.count(&node, id(0), acceptor.into()).sent(1);
        }
        let counts: usize = lock(&carried.0)[&node].iter().map(|(_, acceptors)| acceptors.len()).sum();
        assert_eq!(counts, COUNTS);
        open.sent(3);
        assert_eq!(told(&carried, "n1", 255), [(ONE, 3, 0)], "it was in use");
    }
}

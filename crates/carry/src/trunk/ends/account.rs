//! Tells the [`Traffic`] of each stream which carriers have carried its program's bytes. What
//! agents say to each other first on a stream isn't the program's.

use std::sync::Arc;

use isthmus_trunk::{CarrierId, IdMap, Moved, StreamId, Trunk};

use crate::traffic::Traffic;

/// How many streams that are over may be known beyond those in use, before they are forgotten.
const LINGERING: usize = 64;

/// What one stream's carriers have carried.
#[derive(Debug, Default)]
struct Counts {
    /// Gets the stream's counts; `None` before the program's socket is there.
    traffic: Option<Arc<dyn Traffic>>,
    /// What each carrier carried before the program's socket was there: bytes sent and received.
    early: Vec<(CarrierId, i64, u64)>,
    /// Bytes that the agent here has said on the stream, and that aren't carried yet.
    said: u64,
    /// Bytes that the other agent has said on the stream, and that aren't counted out yet.
    heard: u64,
}

impl Counts {
    /// Passes on what a carrier has carried, less what the agents have said.
    fn pass(&mut self, carrier: CarrierId, sent: i64, received: u64) {
        let Some(traffic) = &self.traffic else {
            match self.early.iter_mut().find(|(by, _, _)| *by == carrier) {
                Some(early) => {
                    early.1 += sent;
                    early.2 += received;
                }
                None => self.early.push((carrier, sent, received)),
            }
            return;
        };
        let heard = self.heard.min(received);
        self.heard -= heard;
        // Bytes that are taken back to be sent elsewhere were counted before.
        let said = self.said.min(u64::try_from(sent).unwrap_or(0));
        self.said -= said;
        let (sent, received) = (sent - said as i64, received - heard);
        if (sent, received) != (0, 0) {
            traffic.moved(carrier, sent, received);
        }
    }
}

/// What the carriers have carried of all streams.
#[derive(Debug, Default)]
pub(super) struct Accounts(IdMap<StreamId, Counts>);

impl Accounts {
    /// Notes that the agent here has said so many bytes on a stream.
    pub(super) fn said(&mut self, id: StreamId, bytes: usize) {
        self.0.entry(id).or_default().said += bytes as u64;
    }

    /// Notes that a stream has its program's socket from here on. The agent here has read `heard`
    /// bytes before.
    pub(super) fn attached(&mut self, id: StreamId, heard: usize, traffic: Arc<dyn Traffic>) {
        let counts = self.0.entry(id).or_default();
        (counts.heard, counts.traffic) = (heard as u64, Some(traffic));
        for (carrier, sent, received) in std::mem::take(&mut counts.early) {
            counts.pass(carrier, sent, received);
        }
    }

    /// Passes on what carriers have carried. `used` is how many streams are in use.
    pub(super) fn pass(&mut self, core: &mut Trunk, used: usize) {
        for Moved { stream, carrier, sent, received } in core.take_moved() {
            self.0.entry(stream).or_default().pass(carrier, sent, received);
        }
        // A stream that isn't in use any more may have bytes of its program under way.
        if self.0.len() > 2 * used + LINGERING {
            self.0.retain(|id, _| core.is_open(*id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Noted(Mutex<Vec<(u32, i64, u64)>>);

    impl Traffic for Noted {
        fn sent(&self, _: u64) {}
        fn received(&self, _: u64) {}
        fn moved(&self, carrier: CarrierId, sent: i64, received: u64) {
            isthmus_service::lock(&self.0).push((carrier.0, sent, received));
        }
    }

    #[test]
    fn what_agents_say_first_is_not_the_programs() {
        let noted = Arc::new(Noted::default());
        let (mut counts, [one, two]) = (Counts::default(), [CarrierId(1), CarrierId(2)]);
        counts.said = 100;
        counts.pass(one, 60, 0);
        counts.pass(two, 0, 30);
        // Its answer and the first bytes of the other program came together.
        counts.heard = 8;
        counts.traffic = Some(noted.clone());
        for (carrier, sent, received) in std::mem::take(&mut counts.early) {
            counts.pass(carrier, sent, received);
        }
        counts.pass(one, 45, 0);
        counts.pass(one, -5, 7);
        counts.pass(two, 5, 0);
        let noted = std::mem::take(&mut *isthmus_service::lock(&noted.0));
        assert_eq!(noted, [(2, 0, 22), (1, 5, 0), (1, -5, 7), (2, 5, 0)]);
    }
}

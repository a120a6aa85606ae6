//! TLS handshakes under way, by source: each source has so many at once, and its further
//! ones wait for their turn. Those of which the client's first message isn't there yet cost
//! nothing, and don't count. So a source that begins handshakes and doesn't go on with them
//! takes no processor time from others, and a site whose nodes all connect at once from
//! behind one NAT only waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Source;
use crate::lock;

/// Most handshakes of a source at once. Honest handshakes take two round trips: over 100 ms as many
/// as this are made in 0.2 s. Handshakes that aren't gone on with end after 10 s.
const AT_ONCE: usize = 256;

/// The handshakes of a service, by source.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Source, Arc<Semaphore>>>);

/// The turn of a handshake, which lasts until this is dropped.
#[derive(Debug)]
pub struct Turn {
    of: Arc<Turns>,
    source: Source,
    turns: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for the turn of a handshake with this peer. The caller bounds the time.
    pub async fn take(self: &Arc<Self>, peer: IpAddr) -> Turn {
        let source = Source::from(peer);
        let new = || Arc::new(Semaphore::new(AT_ONCE));
        let turns = lock(&self.0).entry(source).or_insert_with(new).clone();
        // Before the wait, which may be given up.
        let mut turn = Turn { of: self.clone(), source, turns: Some(turns.clone()), permit: None };
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        (self.permit, self.turns) = (None, None);
        let mut sources = lock(&self.of.0);
        if sources.get(&self.source).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            sources.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_source_has_turns_of_its_own() {
        let turns = Arc::new(Turns::default());
        let [flood, honest] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(turns.take(flood).await);
        }
        let hour = Duration::from_secs(3600);
        assert!(timeout(hour, turns.take(flood)).await.is_err());
        let honest = timeout(hour, turns.take(honest)).await.unwrap();
        held.pop();
        held.push(timeout(hour, turns.take(flood)).await.unwrap());
        assert_eq!(lock(&turns.0).len(), 2);
        drop((held, honest));
        assert!(lock(&turns.0).is_empty(), "a wait that was given up is still counted");
    }
}

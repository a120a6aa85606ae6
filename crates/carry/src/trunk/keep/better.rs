//! A way that works better than one in use takes its place: a carrier by it joins, and when
//! that works, those that it outdoes leave.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use isthmus_trunk::CarrierId;

use crate::trunk::backoff::Backoff;
use crate::trunk::{Better, Dialed, Embedding, Undialed};

type Looking<W> = Pin<Box<dyn Future<Output = Option<Result<Better<W>, Undialed>>> + Send>>;

/// Looks for better ways while the trunk works.
pub(super) struct Betters<E: Embedding> {
    /// The search that goes on, with the carriers that are to be outdone.
    looking: Option<(Looking<E::CarrierWay>, Vec<CarrierId>)>,
    backoff: Backoff,
    /// Carriers by better ways that don't work yet, each with those that it outdoes.
    joined: HashMap<CarrierId, Vec<CarrierId>>,
}

impl<E: Embedding> Betters<E> {
    pub(super) fn new() -> Self {
        Self { looking: None, backoff: Backoff::default(), joined: HashMap::new() }
    }

    /// Looks for a way that is better than those of these carriers. Does nothing while it looks
    /// already, or if a better way has just failed.
    pub(super) fn look(
        &mut self,
        embedding: &Arc<E>,
        carriers: Vec<(CarrierId, E::CarrierWay)>,
        segment: Option<u16>,
    ) {
        let is_busy = self.looking.is_some() || !self.joined.is_empty();
        if carriers.is_empty() || is_busy || self.backoff.lasts(Instant::now()) {
            return;
        }
        let (ids, ways) = carriers.into_iter().unzip();
        let looking = embedding.clone().dial_better(ways, segment);
        self.looking = Some((Box::pin(looking), ids));
    }

    /// Waits for the next carrier that was dialed by a better way; returns it with those that it
    /// outdoes. May be cancelled.
    pub(super) async fn found(&mut self) -> (Dialed<E::CarrierWay>, Vec<CarrierId>) {
        loop {
            let Some((looking, than)) = &mut self.looking else { std::future::pending().await };
            let found = looking.await;
            let than = std::mem::take(than);
            self.looking = None;
            match found {
                None => {}
                Some(Ok(Better { dialed, outdone })) => {
                    let outdone = outdone.into_iter().filter_map(|at| than.get(at).copied());
                    return (dialed, outdone.collect());
                }
                Some(Err(Undialed::Failed(error) | Undialed::Never(error))) => {
                    tracing::debug!(error, "a carrier by a better way was not dialed");
                    self.backoff.failed(Instant::now());
                }
            }
        }
    }

    /// Notes that a carrier by a better way has joined, which outdoes these.
    pub(super) fn joined(&mut self, id: CarrierId, outdone: Vec<CarrierId>) {
        self.joined.insert(id, outdone);
    }

    /// Notes that a carrier works. Returns those that it outdoes.
    pub(super) fn works(&mut self, id: CarrierId) -> Vec<CarrierId> {
        let outdone = self.joined.remove(&id);
        if outdone.is_some() {
            self.backoff = Backoff::default();
        }
        outdone.unwrap_or_default()
    }

    /// Notes that a carrier has ended, or fell silent.
    pub(super) fn fails(&mut self, id: CarrierId) {
        if self.joined.remove(&id).is_some() {
            self.backoff.failed(Instant::now());
        }
    }

    /// Forgets what has failed while the trunk was cut: it says nothing of what works now.
    pub(super) fn healed(&mut self) {
        self.backoff = Backoff::default();
    }
}

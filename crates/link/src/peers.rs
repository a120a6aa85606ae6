//! The trunks that a service keeps, by the party at their other end, and who is being dialed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use isthmus_carry::trunk::Kept;
use isthmus_service::lock;
use isthmus_trunk::{Reason, TrunkId};
use isthmus_wire::GridName;
use tokio::sync::Mutex as AsyncMutex;

use crate::standing::{Own, Standing};

/// Most trunks with one party. Each of the party's processes may make a trunk, and so may this one.
/// Gateways make further trunks once all streams of the first are in use.
const PER_PEER: usize = 8;

/// Locked by the task that dials a trunk to a party. It holds the last failure, and when that was.
type Dialing<E> = Arc<AsyncMutex<Option<(Instant, E)>>>;

#[derive(Debug)]
struct Peer<O, E> {
    /// In the order in which they were added.
    standing: Vec<Arc<Standing<O>>>,
    dialing: Dialing<E>,
}

/// All trunks of a service. `O` is what it alone knows of a trunk, `E` why a party can't be dialed.
#[derive(Debug)]
pub struct Peers<O, E>(Mutex<HashMap<GridName, Peer<O, E>>>);

impl<O, E> Default for Peer<O, E> {
    fn default() -> Self {
        Self { standing: Vec::new(), dialing: Arc::default() }
    }
}

impl<O, E> Default for Peers<O, E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<O: Own, E: Clone> Peers<O, E> {
    /// The trunks with a party, in the order in which they were added.
    pub fn with(&self, name: &GridName) -> Vec<Arc<Standing<O>>> {
        lock(&self.0).get(name).map(|peer| peer.standing.clone()).unwrap_or_default()
    }

    /// The trunk with a party that has this id.
    pub fn find(&self, name: &GridName, id: TrunkId) -> Option<Arc<Standing<O>>> {
        self.with(name).into_iter().find(|standing| standing.kept.id == id)
    }

    /// All trunks with the names of their peers, in the order of the names.
    pub fn all(&self) -> Vec<(GridName, Arc<Standing<O>>)> {
        let peers = lock(&self.0);
        let each =
            peers.iter().flat_map(|(name, peer)| peer.standing.iter().map(|one| (name.clone(), one.clone())));
        let mut all: Vec<_> = each.collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// All trunks, each with the site at its other end.
    pub fn by_site(&self) -> Vec<(String, Arc<Kept>)> {
        let all = self.all().into_iter();
        all.map(|(peer, standing)| (peer.site.to_string(), standing.kept.clone())).collect()
    }

    /// Whether there are as many trunks with a party as there may be.
    pub fn is_full(&self, name: &GridName) -> bool {
        lock(&self.0).get(name).is_some_and(|peer| peer.standing.len() >= PER_PEER)
    }

    /// Whether a trunk with a party can be added.
    ///
    /// # Errors
    /// If there are too many, and none [makes room](Own::makes_room).
    pub(crate) fn room_for(&self, name: &GridName) -> Result<(), String> {
        let all = self.with(name);
        let has_room = all.len() < PER_PEER || all.iter().any(|one| one.own.makes_room(&one.kept));
        has_room.then_some(()).ok_or_else(|| too_many(name))
    }

    /// Adds a trunk. If there are too many with the party, one that [makes
    /// room](Own::makes_room) ends.
    ///
    /// # Errors
    /// If there are too many, and none makes room, or if there is one with this id.
    pub(crate) fn add(&self, standing: Arc<Standing<O>>) -> Result<(), String> {
        let (mut peers, name) = (lock(&self.0), &standing.name);
        let all = &mut peers.entry(name.clone()).or_default().standing;
        if all.iter().any(|one| one.kept.id == standing.kept.id) {
            return Err(format!("a trunk with {name} has this id already"));
        }
        if all.len() >= PER_PEER
            && let Some(place) = all.iter().position(|standing| standing.own.makes_room(&standing.kept))
        {
            all.remove(place).kept.trunk.close(Reason::Carriers);
        }
        if all.len() >= PER_PEER {
            return Err(too_many(name));
        }
        all.push(standing);
        Ok(())
    }

    /// Removes a trunk that has ended.
    pub(crate) fn remove(&self, ended: &Standing<O>) {
        if let Some(peer) = lock(&self.0).get_mut(&ended.name) {
            peer.standing.retain(|standing| standing.kept.id != ended.kept.id);
        }
    }

    /// What `standing` finds, or what `dial` makes. `standing` looks for what stands already; it may
    /// find that there is nothing and that nobody is to dial. One caller at a time dials a party; the
    /// others wait for it.
    ///
    /// # Errors
    /// Of `standing` and of `dial`. A failure holds for all who waited meanwhile.
    pub async fn get_or_dial<T, F: Future<Output = Option<Result<T, E>>>>(
        &self,
        name: &GridName,
        standing: impl Fn() -> F,
        dial: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if let Some(found) = standing().await {
            return found;
        }
        let asked = Instant::now();
        let dialing = lock(&self.0).entry(name.clone()).or_default().dialing.clone();
        let mut failed = dialing.lock().await;
        // Another caller may have dialed meanwhile.
        if let Some(found) = standing().await {
            return found;
        }
        if let Some((_, error)) = failed.as_ref().filter(|(when, _)| *when > asked) {
            return Err(error.clone());
        }
        let dialed = dial.await;
        if let Err(error) = &dialed {
            *failed = Some((Instant::now(), error.clone()));
        }
        dialed
    }
}

fn too_many(name: &GridName) -> String {
    format!("there are {PER_PEER} trunks with {name} already")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    fn name() -> GridName {
        "n1.beta".parse().unwrap()
    }

    /// Has several callers dial at once, of which the first succeeds or fails. Returns what each of
    /// them gets, and how many have dialed.
    async fn together(works: bool) -> (Vec<Result<usize, String>>, usize) {
        let peers = Arc::new(Peers::<(), String>::default());
        let (made, dials) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (peers, made, dials) = (peers.clone(), made.clone(), dials.clone());
            callers.spawn(async move {
                let standing = || std::future::ready(lock(&made).map(Ok));
                let dial = async {
                    let dial = dials.fetch_add(1, Relaxed);
                    // All others come meanwhile.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if !works {
                        return Err(format!("failure {dial}"));
                    }
                    *lock(&made) = Some(dial);
                    Ok(dial)
                };
                peers.get_or_dial(&name(), standing, dial).await
            });
        }
        (callers.join_all().await, dials.load(Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_many_dials_and_the_result_is_everybody_s() {
        assert_eq!(together(true).await, (vec![Ok(0); 5], 1));
        assert_eq!(together(false).await, (vec![Err("failure 0".to_owned()); 5], 1));
    }

    #[tokio::test]
    async fn what_comes_after_a_failure_dials_again() {
        let peers = Peers::<(), String>::default();
        let nothing = || std::future::ready(None);
        let failed = peers.get_or_dial(&name(), nothing, async { Err("no".to_owned()) }).await;
        assert_eq!(failed, Err("no".to_owned()));
        assert_eq!(peers.get_or_dial(&name(), nothing, async { Ok(7) }).await, Ok(7));
    }
}

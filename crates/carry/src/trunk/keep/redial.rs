//! Dials a carrier of a trunk that is cut, again and again.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};

use crate::trunk::{By, Dialed, Embedding, Undialed};

/// Time between the beginnings of two attempts to dial. A network may heal at any time, and an
/// attempt that began before that may wait for long.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Time between the beginnings of two attempts to dial, once the cut has lasted for [`LONG`].
const AGAIN_LONG: Duration = Duration::from_secs(2);
/// How long a cut lasts before carriers are dialed less often.
const LONG: Duration = Duration::from_secs(10);
/// Most attempts at once: more than begin while one waits in vain. Where there are further rails,
/// the first one never has all attempts, nor have the further ones.
const ATTEMPTS: usize = 10;
/// How long an attempt over a further rail may take. After that, the next rail has its turn.
const FURTHER: Duration = Duration::from_secs(10);

/// A carrier that was dialed and its rail, or the reason why none will ever be.
pub(super) type Redialed<W> = Result<(usize, Dialed<W>), String>;
pub(super) type Redialing<W> = Pin<Box<dyn Future<Output = Redialed<W>> + Send>>;

/// Dials a carrier over each rail in turn, until an attempt works.
///
/// # Errors
/// If the other end has no part of the trunk any more.
pub(super) async fn redial<E: Embedding>(
    embedding: Arc<E>,
    ways: Vec<By>,
    begin: Instant,
) -> Redialed<E::CarrierWay> {
    let mut turns = (0..ways.len()).cycle();
    let mut attempts = JoinSet::new();
    // The rails of the attempts that are under way.
    let mut running = HashMap::new();
    let mut next = begin;
    loop {
        tokio::select! {
            () = sleep_until(next.into()), if attempts.len() < ATTEMPTS => {
                let further = running.values().filter(|rail| **rail != 0).count();
                let rail = turn(&mut turns, attempts.len() - further, further);
                let by = ways.get(rail).copied().unwrap_or_default();
                let dialing = dial(embedding.clone(), rail, by);
                running.insert(attempts.spawn(dialing).id(), rail);
                next = Instant::now() + if begin.elapsed() < LONG { AGAIN } else { AGAIN_LONG };
            }
            Some(dialed) = attempts.join_next_with_id() => {
                let id = dialed.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                let rail = running.remove(&id).unwrap_or_default();
                match dialed {
                    Ok((_, Ok(dialed))) => return Ok((rail, dialed)),
                    Ok((_, Err(Undialed::Never(reason)))) => return Err(reason),
                    Ok((_, Err(Undialed::Failed(error)))) => {
                        tracing::debug!(error, rail, "a carrier was not dialed");
                    }
                    Err(error) => tracing::warn!(%error, "an attempt to dial a carrier failed"),
                }
            }
        }
    }
}

/// The rail whose turn it is. `first` and `further` are how many attempts over the first rail and
/// over further ones are under way.
fn turn(turns: &mut impl Iterator<Item = usize>, first: usize, further: usize) -> usize {
    let next = turns.next().unwrap_or_default();
    match next {
        0 if first + 1 >= ATTEMPTS => turns.next().unwrap_or_default(),
        rail if rail != 0 && further + 1 >= ATTEMPTS => 0,
        rail => rail,
    }
}

async fn dial<E: Embedding>(
    embedding: Arc<E>,
    rail: usize,
    by: By,
) -> Result<Dialed<E::CarrierWay>, Undialed> {
    if rail == 0 {
        return embedding.dial(by).await;
    }
    let late = |_| Err(Undialed::Failed(format!("no carrier over this rail within {FURTHER:?}")));
    timeout(FURTHER, embedding.dial(by)).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_rails_leave_the_others_their_turns() {
        const MOST: usize = ATTEMPTS - 1;
        // Rails; attempts under way over the first and over further ones; the next turns.
        for (rails, first, further, want) in [
            (1, 0, 0, [0, 0, 0]),
            (1, MOST, 0, [0, 0, 0]),
            (2, 0, 0, [0, 1, 0]),
            (2, MOST, 0, [1, 1, 1]),
            (5, 0, MOST, [0, 0, 0]),
            (5, 1, 2, [0, 1, 2]),
        ] {
            let mut turns = (0..rails).cycle();
            let got = [(); 3].map(|()| turn(&mut turns, first, further));
            assert_eq!(got, want, "{rails} {first} {further}");
        }
    }
}

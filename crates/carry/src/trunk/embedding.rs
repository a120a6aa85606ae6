//! The service whose trunk is kept: who is at the other end, and how carriers are dialed.

use std::sync::Arc;

use isthmus_net::rails::{Rail, RailWay};
use isthmus_net::secured::Secured;
use isthmus_trunk::CarrierId;

use super::stream::Stream;

/// Why a carrier was not dialed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undialed {
    /// It is tried again.
    Failed(String),
    /// The other end has no trunks any more: the trunk ends.
    Never(String),
}

/// How a carrier is to be dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct By {
    /// The rail.
    pub rail: RailWay,
    /// The longest segment on the whole way, in bytes, where longer ones seem to vanish;
    /// `None`: as each kernel has it.
    pub segment: Option<u16>,
}

/// A carrier that was dialed.
#[derive(Debug)]
pub struct Dialed<W> {
    /// Its connection.
    pub tls: Secured,
    /// How it was dialed.
    pub way: W,
    /// The longest segment on its way: no longer than was asked for.
    pub segment: Option<u16>,
}

/// A carrier by a better way than others.
#[derive(Debug)]
pub struct Better<W> {
    /// The carrier.
    pub dialed: Dialed<W>,
    /// Those that it is better than, by their places among the others.
    pub outdone: Vec<usize>,
}

/// A carrier that a trunk has when it begins to be kept.
#[derive(Debug)]
pub struct First<W> {
    /// The carrier.
    pub id: CarrierId,
    /// How it was dialed, and with which longest segment; `None` if the other end has dialed
    /// it.
    pub dialed: Option<(W, Option<u16>)>,
}

/// The service whose trunk is kept.
pub trait Embedding: Send + Sync + 'static {
    /// How a carrier was dialed.
    type Way: Clone + Send + Sync + 'static;

    /// The other end, for messages.
    fn peer(&self) -> String;

    /// Whether this end can dial carriers.
    fn dials(&self) -> bool;

    /// This end's further rails; by default there are none.
    fn rails(&self) -> &[Rail] {
        &[]
    }

    /// Dials a carrier once on a rail, along all ways that take it; several at once if asked
    /// again. It verifies the other end.
    fn dial(self: Arc<Self>, by: By) -> impl Future<Output = Result<Dialed<Self::Way>, Undialed>> + Send;

    /// Dials a carrier on the first rail by a way that is better than at least one of these;
    /// `None` if there is none, or it is known to fail now. By default no way is better than
    /// another.
    fn dial_better(
        self: Arc<Self>,
        _than: Vec<Self::Way>,
        _segment: Option<u16>,
    ) -> impl Future<Output = Option<Result<Better<Self::Way>, Undialed>>> + Send {
        std::future::ready(None)
    }

    /// A carrier that was dialed in this way is about to join.
    fn joins(&self, _way: &Self::Way) {}

    /// It has joined, under this number.
    fn joined(&self, _id: CarrierId, _way: &Self::Way) {}

    /// A carrier has ended.
    fn carrier_ended(&self, _id: CarrierId) {}

    /// A carrier works; how it was dialed, if this end did.
    fn works(&self, _id: CarrierId, _way: Option<&Self::Way>) {}

    /// The trunk works, which was cut.
    fn healed(&self) {}

    /// The other end has opened a stream.
    fn opened(&self, stream: Stream);

    /// The trunk has ended.
    fn ended(&self);
}

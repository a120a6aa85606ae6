//! The service whose trunk is kept: who is at the other end, and how carriers are dialed.

use std::sync::Arc;

use isthmus_identity::secured::Secured;
use isthmus_net::rails::{Rail, RailWay};
use isthmus_trunk::CarrierId;

use super::stream::Stream;

/// Why a carrier was not dialed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undialed {
    /// Dialing has failed this time, and is tried again. The text tells why.
    Failed(String),
    /// The other end has no part of the trunk any more, so the trunk ends. The text tells why.
    Never(String),
}

/// A dial that has failed is tried again.
impl<E: std::error::Error> From<E> for Undialed {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How a carrier is to be dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct By {
    /// The rail on which to dial.
    pub rail: RailWay,
    /// The longest segment on the whole way, in bytes, where longer ones seem to vanish; `None`
    /// leaves that to each kernel.
    pub segment: Option<u16>,
}

/// A carrier that was dialed.
#[derive(Debug)]
pub struct Dialed<W> {
    /// The TLS connection that is the carrier.
    pub tls: Secured,
    /// The way by which the carrier was dialed.
    pub way: W,
    /// The longest segment on the carrier's way, in bytes: no longer than was asked for.
    pub segment: Option<u16>,
}

/// A carrier by a better way than others.
#[derive(Debug)]
pub struct Better<W> {
    /// The carrier that was dialed.
    pub dialed: Dialed<W>,
    /// The ways that it is better than, by their places among those that were given.
    pub outdone: Vec<usize>,
}

/// A carrier that a trunk has when it begins to be kept.
#[derive(Debug)]
pub struct First<W> {
    /// The carrier's number at this end.
    pub id: CarrierId,
    /// How the carrier was dialed, and with which longest segment; `None` if the other end has
    /// dialed it.
    pub dialed: Option<(W, Option<u16>)>,
}

/// The service whose trunk is kept.
pub trait Embedding: Send + Sync + 'static {
    /// The way by which a carrier was dialed.
    type CarrierWay: Clone + Send + Sync + 'static;

    /// The name of the other end, for messages.
    fn peer(&self) -> String;

    /// Whether this end can dial carriers.
    fn dials(&self) -> bool;

    /// This end's further rails; by default there are none.
    fn rails(&self) -> &[Rail] {
        &[]
    }

    /// Dials a carrier once on a rail, along all ways that take the rail. It verifies the other
    /// end. Several dials may go on at once.
    fn dial(
        self: Arc<Self>,
        by: By,
    ) -> impl Future<Output = Result<Dialed<Self::CarrierWay>, Undialed>> + Send;

    /// Dials a carrier on the first rail by a way that is better than at least one of these.
    /// Returns `None` if there is no such way, or it is known to fail now. By default no way is
    /// better than another.
    fn dial_better(
        self: Arc<Self>,
        _than: Vec<Self::CarrierWay>,
        _segment: Option<u16>,
    ) -> impl Future<Output = Option<Result<Better<Self::CarrierWay>, Undialed>>> + Send {
        std::future::ready(None)
    }

    /// Called when a carrier that was dialed by this way is about to join.
    fn joins(&self, _way: &Self::CarrierWay) {}

    /// Called when a carrier that was dialed by this way has joined, under this number.
    fn joined(&self, _id: CarrierId, _way: &Self::CarrierWay) {}

    /// Called when a carrier has ended.
    fn carrier_ended(&self, _id: CarrierId) {}

    /// Called when a carrier works. It has the carrier's way, if this end has dialed it.
    fn works(&self, _id: CarrierId, _way: Option<&Self::CarrierWay>) {}

    /// Called when the trunk works again, after a cut.
    fn healed(&self) {}

    /// Called when the other end has opened a stream.
    fn opened(&self, stream: Stream);

    /// Called once the trunk has ended.
    fn ended(&self);
}

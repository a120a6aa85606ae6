//! The trunks of this node: to each node with which data is encrypted, one, over which
//! all connections to it go (docs/trunk.md).
//!
//! | module | what |
//! |---|---|
//! | [`registry`] | which trunks stand, and who is dialing one |
//! | [`open`] | opens a stream to a node, over a new trunk if there is none |
//! | [`anew`] | the end of trunks whose other end was started again |
//! | [`calls`] | gRPC with another agent, over a stream |
//! | [`pause`] | what a job does while a trunk is cut |
//! | [`seen`] | what a user sees of them |
//! | [`keep`] | what a trunk does here: who may be at its other end, streams that the peer opens |
//!
//! Their carriers are dialed and accepted by `isthmus-link`, as those of gateways are.

pub(crate) mod anew;
pub(crate) mod calls;
mod keep;
pub(crate) mod open;
pub(crate) mod pause;
pub(crate) mod registry;
pub(crate) mod seen;

/// Protocol name (ALPN, RFC 7301) of a carrier.
pub(crate) const TRUNK_PROTOCOL: &[u8] = b"isthmus-trunk/1";

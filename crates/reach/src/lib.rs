//! Dialing: opens a connection to another party of the grid along its plan, and
//! takes the acceptor's part when another party opens one to this one.
//!
//! The crate knows neither jobs nor how the broker is reached: what it asks of
//! the control plane is [`ControlPlane`], what a connection is for is
//! [`Purpose`].
//!
//! | module | what |
//! |---|---|
//! | [`dialer`] | what a party dials with |
//! | `reach` | the steps of a plan, one after another, until one works |
//! | `attempt` | one step: a dial, TLS, the introduction |
//! | `dials` | each dial, the initiator's part and the acceptor's |
//! | `purpose` | what a connection is for |
//! | `far_end`, [`carrier`] | who is at the other end; an opened connection |
//! | [`rendezvous`] | connections that this party waits for |
//! | [`retry`] | whether a dial that failed works by now |
//! | [`outside`] | how this party is seen from outside its site |
//! | [`raw`] | the helper with the right to raw packets, for `traverse` |
//! | [`probing`] | what the site lets in and out |
//! | [`control_plane`] | what is asked of the control plane |

mod attempt;
pub mod carrier;
pub mod control_plane;
pub mod dialer;
mod dials;
mod far_end;
pub mod outside;
pub mod probing;
mod purpose;
pub mod raw;
mod reach;
pub mod rendezvous;
pub mod retry;
mod words;

pub use control_plane::ControlPlane;
pub use dialer::{Dialer, ReachError, Reached};
pub use far_end::{Expected, peer_identity, secure};
pub use purpose::{Introduction, Purpose, Security, Unaccepted};

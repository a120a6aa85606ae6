//! Dialing: opens a connection to another party of the grid along its plan, and
//! takes the acceptor's part when another party opens one to this one.
//!
//! The crate knows neither jobs nor how the broker is reached: what it asks of
//! the control plane is [`ControlPlane`], what a connection is for is
//! [`Purpose`].
//!
//! | module | what |
//! |---|---|
//! | [`dialer`] | the steps of a plan, one after another, until one works |
//! | `attempt`, `dials`, `over_gateways` | the initiator's part of one step |
//! | [`accept`] | the acceptor's part of each dial |
//! | `far_end`, [`carrier`] | who is at the other end; an opened connection |
//! | [`rendezvous`] | connections that this party waits for |
//! | [`retry`] | whether a dial that failed works by now |
//! | [`outside`] | how this party is seen from outside its site |
//! | [`traverse`], [`raw`] | the dial of that name, both parts; its helper with the right to raw packets |
//! | [`probing`] | what the site lets in and out |
//! | [`control_plane`] | what is asked of the control plane |

pub mod accept;
mod attempt;
pub mod carrier;
pub mod control_plane;
pub mod dialer;
mod dials;
mod far_end;
pub mod outside;
mod over_gateways;
pub mod probing;
pub mod raw;
pub mod rendezvous;
pub mod retry;
pub mod traverse;
mod words;

pub use attempt::StepError;
pub use control_plane::ControlPlane;
pub use dialer::{ClientTls, Dialer, Purpose, ReachError, Reached};
pub use far_end::{peer_identity, secure};
pub use words::{dial_name, route_name};

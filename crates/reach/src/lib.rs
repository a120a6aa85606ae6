//! Dialing: opens a connection to another party of the grid along its plan, and
//! takes the acceptor's part when another party opens one to this one.
//!
//! The crate depends neither on jobs nor on how the broker is reached. The caller
//! provides [`ControlPlane`] for requests to the broker, and a [`Purpose`] for
//! each connection.
//!
//! | module | what |
//! |---|---|
//! | `dialer` | what a party needs to dial |
//! | `reach` | the steps of a plan, one after another, until one works |
//! | `address` | addresses that other parties name, and which of them are dialed |
//! | `failed` | why a dial gives no connection |
//! | `attempt` | one step: a dial, TLS, the introduction |
//! | `dials` | each dial, the initiator's part and the acceptor's |
//! | `purpose` | what a connection is for |
//! | `signatures` | what this party signs, and what agents have signed of themselves |
//! | `vouched` | which addresses are their agents' own words, so that data may go there raw |
//! | `far_end`, [`carrier`] | the party at the other end; an opened connection |
//! | `rendezvous` | connections that this party waits for |
//! | [`retry`] | tries dials again that failed |
//! | [`proof`] | whether an agent answers over what others carry |
//! | `outside` | how this party is seen from outside its site |
//! | [`raw`] | the helper with the right to raw packets, for `traverse` |
//! | `reachability` | whether a relay reaches this party |
//! | [`probing`] | what the site lets in and out |
//! | `control_plane` | requests to the broker, and its directory |

mod address;
mod attempt;
pub mod carrier;
mod control_plane;
mod dialer;
mod dials;
mod failed;
mod far_end;
mod outside;
pub mod probing;
pub mod proof;
mod purpose;
pub mod raw;
mod reach;
mod reachability;
mod rendezvous;
pub mod retry;
mod signatures;
mod vouched;
mod words;

pub use address::service_address;
pub use control_plane::{ControlPlane, Relays};
pub use dialer::{Dialer, Found, NotThere, ReachError, Reached};
pub use failed::{DialFailed, NotDialed, NotInjected};
pub use far_end::{Expected, Unverified, secure};
pub use outside::Outside;
pub use purpose::{Introduction, Purpose, Security, Unaccepted};
pub use reachability::reach_test;
pub use rendezvous::PendingRendezvous;
pub use signatures::Signatures;

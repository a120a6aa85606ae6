//! Sockets between two parties, and the addresses at which parties are reached.
//!
//! | module | what |
//! |---|---|
//! | [`dial`] | how one socket between two parties is opened |
//! | [`keepalive`] | signs of life on idle connections |
//! | [`handover`] | passing a socket to another process |
//! | [`loopback`] | loopback connections of an agent: knocks, programs' ends |
//! | [`mod@sock_diag`] | what the kernel tells of its TCP sockets |
//! | [`rails`] | further links of a machine |
//! | [`callback`] | which addresses another party may have a service dial |
//! | [`relay_places`] | where relays may be, as one site sees it |
#![deny(unsafe_code)]

pub mod callback;
pub mod dial;
pub mod handover;
pub mod keepalive;
pub mod loopback;
pub mod rails;
pub mod relay_places;
pub mod sock_diag;

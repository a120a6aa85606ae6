//! gRPC over mutual TLS, and what the protocol's messages mean.
//!
//! | module | what |
//! |---|---|
//! | [`grpc`] | gRPC over mutual TLS: connecting, serving, the caller's identity |
//! | [`calls`] | which call is whose to make |
//! | [`connection`] | one connection in the logs of all services |
//! | [`enrol`], [`renewal`] | certificates by a token, and new ones before the old ones end |
//! | [`contact`], [`seen`], [`enums`] | plans, measurements and enums between wire form and plan form |
//! | [`rendezvous`] | requests and replies by which two parties connect, read from the protocol |
//! | [`probe`] | what a relay is asked to find out, read from the protocol |
//! | [`page`] | pages of records |
//! | [`packets`] | whether large packets pass between two parties |
//! | [`port`] | one port for two services of a process |
#![deny(unsafe_code)]

pub mod calls;
pub mod connection;
pub mod contact;
pub mod enrol;
pub mod enums;
pub mod grpc;
pub mod packets;
pub mod page;
pub mod port;
pub mod probe;
pub mod rendezvous;
pub mod renewal;
pub mod seen;

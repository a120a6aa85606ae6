//! What isthmus needs of the network and of cryptography.
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | who somebody is: role, site, name, owner, as certificates say it |
//! | [`authority`] | the grid's certificate authority |
//! | [`token`] | join tokens: the right to one certificate |
//! | [`credentials`] | a service's own certificate and key, and TLS configurations made of them |
//! | [`counters`] | what a service counts, as text for Prometheus |
//! | [`connection`] | one connection in the logs of all services |
//! | [`contact`] | plans and policies between wire form and decisions |
//! | [`seen`] | likewise what a node found out of its site |
//! | [`enrol`] | joining a grid with a token |
//! | [`renewal`] | fresh certificates before the old ones end |
//! | [`files`] | secrets on disk |
//! | [`clock`], [`mod@lock`] | this machine's time; mutexes |
//! | [`mac`] | message authentication, random values |
//! | [`deadline`] | one limit for work that has several parts |
//! | [`dial`] | how one socket between two parties is opened |
//! | [`callback`] | where somebody else may have one dial to |
//! | [`mod@listen`] | listening for bursts of connections |
//! | [`handover`] | handing a socket to another process |
//! | [`loopback`] | a program's end of a connection that an agent carries |
//! | [`grpc`] | gRPC over mutual TLS: connecting, serving, and who called |
#![forbid(unsafe_code)]

pub mod authority;
pub mod callback;
pub mod clock;
pub mod connection;
pub mod contact;
pub mod counters;
pub mod credentials;
pub mod deadline;
pub mod dial;
pub mod enrol;
pub mod enums;
pub mod files;
pub mod grpc;
pub mod handover;
pub mod identity;
pub mod listen;
pub mod lock;
pub mod loopback;
pub mod mac;
pub mod rendezvous;
pub mod renewal;
pub mod seen;
pub mod token;

pub use authority::Authority;
pub use credentials::Credentials;
pub use deadline::{Deadline, Late};
pub use identity::{Identity, Owner, Role};
pub use listen::listen;
pub use lock::lock;

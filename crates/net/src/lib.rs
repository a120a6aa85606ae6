//! Network and cryptography for all services.
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | identities: role, site, name, owner, as certificates name them |
//! | [`authority`] | the grid's certificate authority |
//! | [`token`] | join tokens: the right to one certificate |
//! | [`credentials`] | a service's own certificate and key, and TLS configurations made of them |
//! | [`tls`], [`secured`] | TLS connections; the check of their peers' certificates |
//! | [`counters`] | a service's counters, for Prometheus |
//! | [`connection`] | one connection in the logs of all services |
//! | [`contact`], [`seen`], [`enums`] | plans, measurements and enums between wire form and plan form |
//! | [`page`] | pages of records |
//! | [`rendezvous`] | requests and replies by which two nodes connect, read from the protocol |
//! | [`attachment`] | whether a service is attached, for who asks its process |
//! | [`signed`] | statements that a party has signed by the key of its certificate |
//! | [`enrol`], [`renewal`] | certificates by a token, and new ones before the old ones end |
//! | [`files`], [`private`] | secrets on disk; paths at which no other user can put anything |
//! | [`mod@log`] | a log that waits for nobody who reads it |
//! | [`few_lines`] | logs that nobody can flood |
//! | [`clock`], [`mod@lock`] | this machine's time; mutexes |
//! | [`mac`] | message authentication, random values |
//! | [`kept`] | work in the background that is started again if it fails |
//! | [`allowance`] | how often each party may do something |
//! | [`silence`] | for how long another service has been silent |
//! | [`deadline`] | one time limit for work that has several parts |
//! | [`dial`] | how one socket between two parties is opened |
//! | [`packets`] | whether large packets pass between two parties |
//! | [`rails`] | further links of a machine |
//! | [`callback`] | which addresses another party may have a service dial |
//! | [`relay_places`] | where relays may be, as one site sees it |
//! | [`mod@listen`] | listening for bursts of connections, first bytes |
//! | [`port`] | one port for two services of a process |
//! | [`unidentified`] | connections whose peers have not proved an identity yet |
//! | [`keepalive`] | signs of life on idle connections |
//! | [`handover`] | passing a socket to another process |
//! | [`upgrade`] | replacing a service's program in place |
//! | [`loopback`] | loopback connections of an agent: knocks, programs' ends |
//! | [`grpc`] | gRPC over mutual TLS: connecting, serving, the caller's identity |
#![deny(unsafe_code)]

pub mod allowance;
pub mod attachment;
pub mod audit;
pub mod authority;
pub mod callback;
pub mod calls;
pub mod clock;
pub mod connection;
pub mod contact;
pub mod counters;
pub mod credentials;
pub mod deadline;
pub mod dial;
pub mod enrol;
pub mod enums;
pub mod exhausted;
pub mod few_lines;
pub mod files;
pub mod grpc;
pub mod handover;
pub mod identity;
pub mod keepalive;
pub mod kept;
pub mod listen;
pub mod lock;
pub mod log;
pub mod loopback;
pub mod mac;
pub mod packets;
pub mod page;
pub mod peers;
pub mod port;
pub mod private;
pub mod probe;
pub mod rails;
pub mod relay_places;
pub mod rendezvous;
pub mod renewal;
pub mod secured;
pub mod seen;
pub mod signed;
pub mod silence;
pub mod sock_diag;
pub mod tls;
pub mod token;
pub mod unidentified;
pub mod upgrade;

pub use authority::Authority;
pub use credentials::Credentials;
pub use deadline::{Deadline, Late};
pub use identity::{Identity, Owner, Role};
pub use listen::listen;
pub use lock::lock;

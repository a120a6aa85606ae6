//! The data plane of agents, gateways and relays: worker threads that carry the bytes
//! of connections between sockets.
//!
//! | module | does |
//! |---|---|
//! | [`plane`] | the worker threads, what is handed to them, and their counters |
//! | `worker`, `item` | one thread: waits for events, gives what it carries turns |
//! | `alarm` | ends a thread's wait at a time |
//! | `mailbox` | messages to a worker |
//! | `memory` | keeping memory that was freed |
//! | `socket` | a socket with its readiness: when to read again, and what an end is |
//! | `released` | giving spliced pairs to a program that takes this one's place, and taking them |
//! | `program` | a program's socket, and the rules for its end |
//! | `tcp_info` | what the kernel tells of a connection |
//! | `bbr_info` | what the kernel's BBR tells of a connection |
//! | `pacing_rate` | how fast the kernel sends over a connection at most |
//! | `tcp_rto` | how soon TCP sends lost segments again |
//! | `tls` | a TLS connection without buffers of its own |
//! | `splice` | two sockets whose bytes go to each other, for relays and gateways |
//! | [`trunk`] | programs' sockets over a few TLS connections |

#![deny(unsafe_code)]

mod alarm;
mod bbr_info;
mod item;
mod mailbox;
mod memory;
mod pacing_rate;
pub mod plane;
mod program;
mod released;
mod socket;
mod socket_option;
mod splice;
mod tcp_info;
mod tcp_rto;
mod tls;
mod tools;
mod traffic;
pub mod trunk;
mod turn;
mod worker;

pub use released::Released;
pub use splice::Share;
pub use tcp_info::{TcpInfo, unacknowledged_bytes};
pub use traffic::{Traffic, Uncounted};

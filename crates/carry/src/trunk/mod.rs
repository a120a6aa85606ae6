//! Trunks: many programs' sockets over a few TLS connections, the carriers
//! (docs/trunk.md).
//!
//! | module | does |
//! |---|---|
//! | `handle` | what other threads do with a trunk: join carriers, open streams |
//! | `stream` | a stream before it has a program's socket |
//! | `ends` | one end of a trunk on its worker: carriers, streams, turns |
//! | `carrier` | a TLS connection that carries frames |
//! | `attached` | a stream with its program's socket |

mod attached;
mod carrier;
mod ends;
mod handle;
mod stream;

pub use handle::{Notice, Notices, OpenError, Snapshot, Trunk};
pub use stream::Stream;

pub(crate) use ends::Ends;
pub(crate) use handle::Inbox;

//! Trunks: many programs' sockets over a few TLS connections, the carriers
//! (docs/trunk.md).
//!
//! | module | does |
//! |---|---|
//! | `handle` | what other threads do with a trunk: join carriers, open streams |
//! | `stream` | a stream before it has a program's socket |
//! | `ends` | one end of a trunk on its worker: carriers, streams, turns |
//! | `carrier` | a TLS connection that carries frames |
//! | `congestion` | how carriers' sockets control congestion |
//! | `launching` | asks the kernel how a new carrier's start-up goes, and bounds how fast it sends |
//! | `attached` | a stream with its program's socket |
//! | `kept` | a trunk whose other end is known, and whether it works |
//! | `embedding` | the service whose trunk is kept: dials its carriers |
//! | `keep` | has a trunk's carriers dialed anew until it isn't needed |
//! | `further` | dials more carriers for a busy trunk |
//! | `backoff` | pauses between dials that fail |
//! | [`figures`] | figures of all trunks of a service, for its counters |
//! | [`seen`] | what users see of trunks |
//! | [`accept`] | a carrier that the other end has dialed |

pub mod accept;
mod attached;
mod backoff;
mod carrier;
mod congestion;
mod embedding;
mod ends;
pub mod figures;
mod further;
mod handle;
mod keep;
mod kept;
mod launching;
pub mod seen;
mod stream;

pub use congestion::{Bbr, DecidedBy};
pub use embedding::{Better, By, Dialed, Embedding, First, Undialed};
pub use handle::{CarrierSnapshot, Control, Notice, Notices, OpenError, Snapshot, Trunk, Waits};
pub use keep::keep;
pub use kept::{Kept, Pauses, config};
pub use stream::{Running, Stream};

pub(crate) use ends::Ends;
pub(crate) use handle::Inbox;

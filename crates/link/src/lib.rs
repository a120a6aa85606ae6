//! The trunks of a service, an agent or a gateway: which stand, and how their carriers are dialed
//! and accepted. The dialer is `isthmus-reach`; `isthmus-carry` keeps the trunks.
//!
//! | module | what |
//! |---|---|
//! | `carriers` | how a carrier is dialed, accepted, bettered and dialed anew |
//! | `service` | what differs between agents and gateways |
//! | `peers` | all trunks of a service, by the party at their other end |
//! | `standing` | a trunk that stands |
//! | `way`, `ways` | how a carrier was dialed, and the carriers of a trunk |

mod carriers;
mod peers;
mod service;
mod standing;
mod way;
mod ways;

pub use carriers::{accept, dial, established, make};
pub use peers::Peers;
pub use service::{Link, Service};
pub use standing::{Last, Own, Standing};
pub use way::{CarrierWay, DialedWay};

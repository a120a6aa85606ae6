//! The agent's connection to its gateway, and over it to the broker.
//!
//! | module | what |
//! |---|---|
//! | [`upstream`] | the rest of the agent's interface to it |
//! | [`attachment`] | keeps the agent attached to one of the site's gateways |
//! | `announcement` | what the agent announces of its node, and signs |
//! | `opener` | opens attachments, handles a gateway's messages |
//! | [`gateways`] | the order in which gateways are tried |
//! | `known` | the gateways that are known, configured or heard of |

mod announcement;
mod attached;
pub(crate) mod attachment;
pub(crate) mod gateways;
pub(crate) mod known;
pub(crate) mod opener;
pub(crate) mod upstream;

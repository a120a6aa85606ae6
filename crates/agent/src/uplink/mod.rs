//! The agent's way to its gateway, and by it to the broker.
//!
//! | module | what |
//! |---|---|
//! | [`upstream`] | what the gateway is asked |
//! | [`attachment`] | the attachment to one of the site's gateways |
//! | [`gateways`] | which of them |

mod attached;
pub mod attachment;
pub mod gateways;
pub mod upstream;

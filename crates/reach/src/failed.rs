//! Why a dial gives no connection.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use isthmus_net::callback::NotAnAgent;
use isthmus_net::dial::DialError;
use isthmus_net::relay_places::NotARelay;
use isthmus_service::Late;

use crate::raw::HelperError;

/// Why a dial gives no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialFailed {
    /// The initiator's address, or that of the relay or gateway, may not be dialed.
    #[error(transparent)]
    NotDialed(#[from] NotDialed),
    /// The other end, or a relay that is asked, gives no answer.
    #[error(transparent)]
    Unanswered(#[from] DialError),
    /// Neither predictions nor relays tell the outside address of a port.
    #[error("no relay can be asked how this node is seen")]
    NoRelay,
    /// The initiator's SYN is not taken in.
    #[error(transparent)]
    NotInjected(#[from] NotInjected),
}

/// Why an address isn't dialed that another party has named.
#[derive(Debug, thiserror::Error)]
pub enum NotDialed {
    /// It can't be resolved.
    #[error(transparent)]
    Unresolved(#[from] DialError),
    /// It is not resolved in time.
    #[error("the address of {address}: {late}")]
    Late {
        /// The address, `HOST:PORT`.
        address: String,
        /// The time that there was.
        late: Late,
    },
    /// No other party of the grid can be there.
    #[error(transparent)]
    NotAnAgent(#[from] NotAnAgent),
    /// No relay may be there.
    #[error(transparent)]
    NotARelay(#[from] NotARelay),
    /// A gateway that another site's gateway orders to dial must not dial into its own site.
    #[error("{0} is in this site, and gateways dial only outside their site")]
    OwnSite(IpAddr),
}

/// Why a SYN is not injected.
#[derive(Debug, thiserror::Error)]
pub enum NotInjected {
    /// The helper doesn't run.
    #[error("the agent has no right to raw packets")]
    NoRight,
    /// This agent's own address can't be resolved.
    #[error(transparent)]
    Unresolved(#[from] DialError),
    /// The SYN is for another party.
    #[error("the SYN is for {to}, and this agent is at {own}")]
    Elsewhere {
        /// Where the SYN leads.
        to: SocketAddrV4,
        /// This agent's address.
        own: SocketAddr,
    },
    /// No other node can be where the SYN comes from.
    #[error(transparent)]
    NotAnAgent(#[from] NotAnAgent),
    /// The helper has failed.
    #[error(transparent)]
    Helper(#[from] HelperError),
}

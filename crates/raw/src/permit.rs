//! Which segments may be injected into this host's IP stack: those that begin a
//! connection to the requester's own listener, as if they had come from outside.
//! So the helper can't be used to reach what its user could not listen on, nor
//! to send anything to another host.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Syn;

/// Why a segment is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its destination is not the requester's listener.
    #[error("it is for {destination}, and this agent listens at {listener}")]
    NotTheListener {
        /// Where it was to go.
        destination: SocketAddrV4,
        /// Where it might.
        listener: SocketAddrV4,
    },
    /// Its source is not an address outside this host.
    #[error("it says it is from {0}, where nothing outside this host can be")]
    Source(Ipv4Addr),
}

/// Whether a SYN may be put into the stack of the host with these addresses,
/// for a listener of the caller's.
///
/// # Errors
/// [`Refused`].
pub fn permitted(syn: &Syn, listener: SocketAddrV4, own: &[Ipv4Addr]) -> Result<(), Refused> {
    let (source, destination) = (*syn.source.ip(), *syn.destination.ip());
    let listened = listener.ip().is_unspecified() || *listener.ip() == destination;
    let here = own.contains(&destination) && !destination.is_loopback();
    if !here || !listened || syn.destination.port() != listener.port() {
        return Err(Refused::NotTheListener { destination: syn.destination, listener });
    }
    let nowhere = source.is_loopback()
        || source.is_unspecified()
        || source.is_multicast()
        || source.is_broadcast()
        || own.contains(&source);
    if nowhere { Err(Refused::Source(source)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syn::Options;

    #[test]
    fn only_to_the_callers_own_listener_and_only_from_outside() {
        let own = ["127.0.0.1", "192.0.2.7", "10.0.0.7"].map(|ip| ip.parse().unwrap());
        for (source, destination, listener, good) in [
            ("198.51.100.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", true),
            ("198.51.100.1:4000", "192.0.2.7:7730", "0.0.0.0:7730", true),
            ("198.51.100.1:4000", "192.0.2.7:22", "192.0.2.7:7730", false),
            ("198.51.100.1:4000", "192.0.2.8:7730", "0.0.0.0:7730", false),
            ("198.51.100.1:4000", "10.0.0.7:7730", "192.0.2.7:7730", false),
            ("198.51.100.1:4000", "127.0.0.1:7730", "0.0.0.0:7730", false),
            ("198.51.100.1:4000", "255.255.255.255:7730", "0.0.0.0:7730", false),
            ("127.0.0.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("10.0.0.7:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("0.0.0.0:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("224.0.0.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("255.255.255.255:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
        ] {
            let syn = Syn {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                sequence: 1,
                window: 1,
                options: Options::default(),
            };
            let found = permitted(&syn, listener.parse().unwrap(), &own);
            assert_eq!(found.is_ok(), good, "{source} to {destination}, {listener} listens: {found:?}");
        }
    }
}

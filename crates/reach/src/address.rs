//! Addresses that other parties name, and which of them are dialed.

use std::net::SocketAddr;

use isthmus_net::callback;
use isthmus_net::dial::resolve;
use isthmus_service::Deadline;

use crate::dialer::Dialer;
use crate::failed::NotDialed;

/// Resolves the address of another site's service. The other site chose it, so the address must not
/// be this host's, nor have a port of system services.
///
/// # Errors
/// If the service has no address, or [`callback::check_service`] refuses it.
pub async fn service_address(address: &str) -> Result<SocketAddr, NotDialed> {
    let address = resolve(address).await?;
    callback::check_service(address)?;
    Ok(address)
}

impl Dialer {
    /// The address of a relay that the broker named.
    ///
    /// # Errors
    /// If the relay's address can't be resolved in time, or if no relay may be there.
    pub(crate) async fn relay_address(
        &self,
        address: &str,
        deadline: Deadline,
    ) -> Result<SocketAddr, NotDialed> {
        let places = self.control.relay_places();
        let late = |late| NotDialed::Late { address: address.to_owned(), late };
        Ok(deadline.bound(places.resolve(address)).await.map_err(late)??)
    }

    /// The address of another site's gateway, which that site has named.
    ///
    /// # Errors
    /// If the address can't be resolved in time, or if no gateway of another site may be there.
    pub(crate) async fn gateway_address(
        &self,
        address: &str,
        deadline: Deadline,
    ) -> Result<SocketAddr, NotDialed> {
        let late = |late| NotDialed::Late { address: address.to_owned(), late };
        let at = deadline.bound(service_address(address)).await.map_err(late)??;
        self.control.check_address(at.ip())?;
        Ok(at)
    }
}

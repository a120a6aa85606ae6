//! What pilots need of the grid, by this agent's credentials and attachment.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use isthmus_identity::Credentials;
use isthmus_identity::pilot::{self, Minted, Terms};
use isthmus_pilot::Grid;
use isthmus_rpc::grpc;
use isthmus_wire::VirtualAddress;
use tonic::Code;
use tracing::warn;

use crate::uplink::upstream::Upstream;

/// How long the grid may take to end the nodes of a pilot.
const END: Duration = Duration::from_secs(60);

/// The grid, for this agent's pilots.
#[derive(Debug)]
pub(crate) struct AgentGrid {
    pub(super) credentials: Credentials,
    pub(super) upstream: Upstream,
}

impl Grid for AgentGrid {
    fn mint(&self, terms: Terms) -> Result<Minted, String> {
        pilot::mint(&self.credentials, terms).map_err(|error| error.to_string())
    }

    fn gateway(&self) -> Option<String> {
        self.upstream.gateway().map(|gateway| gateway.to_string())
    }

    fn address(&self) -> Option<Ipv4Addr> {
        self.upstream.own_address().map(VirtualAddress::ip)
    }

    async fn end(&self, token: [u8; 16], expires: SystemTime) -> Result<(), String> {
        let request = pilot::end(&self.credentials, token, expires).map_err(|error| error.to_string())?;
        match self.upstream.end_pilot(request, END).await {
            Ok(_) => Ok(()),
            // Another identity of this agent's has minted it. Its nodes' certificates end by themselves.
            Err(status) if status.code() == Code::PermissionDenied => {
                warn!(reason = grpc::reason(&status), "the grid doesn't end the nodes of a pilot");
                Ok(())
            }
            Err(status) => Err(grpc::reason(&status)),
        }
    }
}

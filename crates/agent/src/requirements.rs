//! What an agent needs of its node: the preloaded library, a gateway that answers, a kernel that
//! names the owners of sockets.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_identity::Credentials;
use isthmus_net::sock_diag;
use isthmus_service::files::installed;
use tokio::net::TcpStream;
use tracing::warn;

use crate::config::AgentConfig;
use crate::jobs::job_directory::SHIM;

/// Limit for a test connection to a gateway at the start.
const GATEWAY_DEADLINE: Duration = Duration::from_secs(10);

/// Checks whether an agent could run with this configuration on this node.
///
/// # Errors The error that such an agent would end with.
pub async fn check(config: &AgentConfig, credentials: &Credentials) -> anyhow::Result<()> {
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    find_shim(config, &isthmus)?;
    config.check()?;
    let gateways = config.gateways(credentials.upstream()).map_err(anyhow::Error::msg)?;
    towards(&gateways).await.map(drop)
}

/// The address from which this node reaches the first gateway that answers.
pub(crate) async fn towards(gateways: &[String]) -> anyhow::Result<IpAddr> {
    let mut failures = Vec::new();
    for gateway in gateways {
        match tokio::time::timeout(GATEWAY_DEADLINE, TcpStream::connect(gateway)).await {
            Ok(Ok(stream)) => return Ok(stream.local_addr()?.ip()),
            Ok(Err(error)) => failures.push(format!("{gateway}: {error}")),
            Err(_) => failures.push(format!("{gateway}: no answer within {GATEWAY_DEADLINE:?}")),
        }
    }
    bail!("cannot reach the gateway at {}; is `isthmus gateway` running there?", failures.join(", nor at "))
}

/// Finds the library that is preloaded into programs.
pub(crate) fn find_shim(config: &AgentConfig, isthmus: &Path) -> anyhow::Result<PathBuf> {
    let candidates: Vec<PathBuf> = match &config.shim {
        Some(shim) => vec![shim.clone()],
        None => installed(isthmus, SHIM),
    };
    candidates.iter().find(|candidate| candidate.is_file()).cloned().with_context(|| {
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!("cannot find the preloaded library: looked for {}; set [agent] shim", looked.join(" and "))
    })
}

/// Warns if the kernel doesn't tell this user who owns a socket.
pub(crate) fn check_kernel() {
    if let Err(error) = sock_diag::check() {
        warn!(%error, "the kernel does not name the owners of sockets: other users of this node can connect to programs' listeners over loopback");
    }
}

//! Serves measurements of other nodes.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_carry::TcpInfo;
use isthmus_net::Role;
use isthmus_net::lock;
use isthmus_net::secured::Secured;
use isthmus_plan::limits;
use tokio::sync::Semaphore;

use super::allowance::Allowance;
use super::exchange::serve;

/// How long a measurement may take over a way of usual length, and how long it may wait for another one to end.
const DEADLINE: Duration = Duration::from_secs(15);

/// Serves measurements, one at a time and only so often for each node, because they
/// take bandwidth from jobs.
#[derive(Debug)]
pub(crate) struct Measuring {
    one: Semaphore,
    allowance: Mutex<Allowance>,
}

impl Default for Measuring {
    fn default() -> Self {
        Self { one: Semaphore::new(1), allowance: Mutex::default() }
    }
}

impl Measuring {
    /// The acceptor's side of one measurement; `busy`: whether a job runs here.
    ///
    /// # Errors
    /// The connection's; if the peer is no agent or measures too often, or if other
    /// measurements take too long.
    pub(crate) async fn serve(&self, stream: Secured, busy: impl Fn() -> bool) -> io::Result<()> {
        let Some(peer) = stream.identity().filter(|peer| peer.role() == Role::Agent) else {
            return Err(io::Error::other("only agents measure"));
        };
        if !lock(&self.allowance).allow(&peer.to_string(), Instant::now()) {
            return Err(io::Error::other(format!("{peer} measures too often")));
        }
        let permit = tokio::time::timeout(DEADLINE, self.one.acquire()).await;
        let _permit =
            permit.map_err(|_| io::Error::other("other nodes measure"))?.map_err(io::Error::other)?;
        // Its round trip was measured while it opened.
        let round_trip = TcpInfo::of(stream.get_ref().0).map(|info| info.rtt).ok();
        let deadline = limits::grown(DEADLINE, round_trip);
        tokio::time::timeout(deadline, serve(stream, busy)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

//! `relay`: both sides connect to a relay, each with a ticket from the broker.

use isthmus_rpc::rendezvous::RequestWay;
use tokio::net::TcpStream;

use crate::attempt::{Attempt, Opened};

impl Attempt<'_> {
    pub(super) async fn relay(&mut self) -> Opened<TcpStream> {
        let relay = self.rendezvous(RequestWay::Relay { avoid: self.named.clone() }).await?;
        self.to_stop(relay, self.deadline).await
    }
}

//! Both ends of a trunk, with programs.

use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{CarrierSnapshot, Notice, Notices, Stream, Trunk};
use isthmus_trunk::{CarrierId, Config, Purpose, Role, TrunkId, Wanted};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Agents, Counts, PATIENCE, counts, pair, plane};

/// One end of a trunk, with what it tells.
pub(crate) struct TrunkEnd {
    pub(crate) trunk: Trunk,
    pub(crate) notices: Notices,
    /// Dropped last, because that waits for the worker threads.
    pub(crate) plane: Plane,
}

impl TrunkEnd {
    pub(crate) fn new(role: Role) -> Self {
        let plane = plane();
        let (trunk, notices) = plane.trunk(Config::new(role, TrunkId([7; 16]))).unwrap();
        Self { trunk, notices, plane }
    }

    /// The next notice that is wanted; others are dropped.
    pub(crate) async fn notice<T>(&mut self, mut wanted: impl FnMut(Notice) -> Option<T>) -> T {
        let waiting = async {
            loop {
                if let Some(found) = wanted(self.notices.recv().await.expect("there is one")) {
                    return found;
                }
            }
        };
        timeout(PATIENCE, waiting).await.expect("comes in time")
    }

    pub(crate) async fn wanted(&mut self, such: impl Fn(&Wanted) -> bool) -> Wanted {
        self.notice(|notice| match notice {
            Notice::Wanted(wanted) if such(&wanted) => Some(wanted),
            _ => None,
        })
        .await
    }

    /// Waits until the carriers fulfil a condition.
    pub(crate) async fn carriers(&self, such: impl Fn(&[CarrierSnapshot]) -> bool) {
        let waiting = async {
            while !such(&self.trunk.status().await.unwrap().carriers) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("they become so in time");
    }

    pub(crate) async fn opened(&mut self) -> Stream {
        self.notice(|notice| match notice {
            Notice::Opened(stream) => Some(stream),
            _ => None,
        })
        .await
    }
}

/// Both ends of a trunk in one process.
pub(crate) struct Both {
    pub(crate) agents: Agents,
    pub(crate) near: TrunkEnd,
    pub(crate) far: TrunkEnd,
}

impl Both {
    /// Makes both ends of a trunk, with one carrier.
    pub(crate) async fn new() -> Self {
        let (near, far) = (TrunkEnd::new(Role::Initiator), TrunkEnd::new(Role::Acceptor));
        let both = Self { agents: Agents::new(), near, far };
        both.carrier().await;
        both
    }

    /// Joins a carrier; returns its id at the near end, and copies of both sockets.
    pub(crate) async fn carrier(&self) -> (CarrierId, [std::net::TcpStream; 2]) {
        self.carrier_for(pair().await, Purpose::Bulk).await
    }

    pub(crate) async fn carrier_for(
        &self,
        sockets: (TcpStream, TcpStream),
        purpose: Purpose,
    ) -> (CarrierId, [std::net::TcpStream; 2]) {
        let (a, b) = self.agents.secure(sockets).await;
        let copy = |socket: &TcpStream| SockRef::from(socket).try_clone().unwrap().into();
        let copies = [copy(a.get_ref().0), copy(b.get_ref().0)];
        let near = self.near.trunk.join_for(a.into_parts().0, purpose);
        let (near, far) = tokio::join!(near, self.far.trunk.join(b.into_parts().0));
        far.unwrap();
        (near.unwrap(), copies)
    }

    /// The two ends of a stream that both agents have introduced.
    pub(crate) async fn stream(&mut self) -> (Stream, Stream) {
        let mut near = timeout(PATIENCE, self.near.trunk.open()).await.expect("opens in time").unwrap();
        near.send(b"preamble");
        let mut far = self.far.opened().await;
        assert_eq!(far.receive::<8>().await.unwrap(), *b"preamble");
        far.send(b"answer");
        assert_eq!(near.receive::<6>().await.unwrap(), *b"answer");
        (near, far)
    }

    /// Two programs that a stream joins.
    pub(crate) async fn programs(&mut self) -> (TcpStream, TcpStream) {
        self.counted_programs(counts()).await
    }

    pub(crate) async fn counted_programs(&mut self, counts: Arc<Counts>) -> (TcpStream, TcpStream) {
        let (near, far) = self.stream().await;
        let (program, agent) = pair().await;
        let (other_program, other_agent) = pair().await;
        far.attach(other_agent.into_std().unwrap(), Arc::<Counts>::default()).unwrap();
        near.attach(agent.into_std().unwrap(), counts).unwrap();
        (program, other_program)
    }

    /// Waits until neither end has streams.
    pub(crate) async fn unused(&self) {
        let waiting = async {
            for end in [&self.near, &self.far] {
                while end.trunk.status().await.unwrap().trunk.streams > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        timeout(PATIENCE, waiting).await.expect("all streams end");
    }
}

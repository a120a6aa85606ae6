//! Tries failed steps again in the background, so that no program's connection
//! waits for them.

use std::time::{Duration, Instant};

use isthmus_identity::secured::ClientTls;
use isthmus_net::dial::SocketOptions;
use isthmus_plan::failures::Due;
use isthmus_plan::{Failure, limits, site_trunk};
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::lock;
use tokio::task::JoinSet;

use crate::attempt::{Attempt, StepError};
use crate::dialer::{Dialer, LOOKUP};
use crate::proof::answered;
use crate::purpose::Security;

/// How often due steps are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Most steps that are tried at once. The others follow at the next look.
const TOGETHER: usize = 16;

/// Tries each due step; never returns. A try ends with a TLS handshake with the other party. Over
/// the gateways' trunk, it ends with an answer of the other party.
pub async fn watch(dialer: &Dialer, tls: &ClientTls) {
    loop {
        tokio::time::sleep(LOOK).await;
        let due = lock(&dialer.failures).due(Instant::now());
        let mut trying = JoinSet::new();
        for due in due.into_iter().take(TOGETHER) {
            let (dialer, tls) = (dialer.clone(), tls.clone());
            trying.spawn(async move { dialer.try_again(&due, &tls, limits::OVER_TRUNK).await });
        }
        trying.join_all().await;
    }
}

impl Dialer {
    /// Tries a step again that failed. `over_trunk` is the limit over the gateways' trunk.
    async fn try_again(&self, due: &Due<Peer>, tls: &ClientTls, over_trunk: Duration) {
        // A failed lookup is no result of the step.
        let Ok(found) = self.find((due.peer.clone(), None), LOOKUP).await else { return };
        let name = &found.name;
        let towards = found.towards();
        let way = (due.route, due.dial);
        let step = if way == site_trunk::WAY {
            found.plan.has_site_trunk().then(|| site_trunk::step(over_trunk))
        } else {
            found.plan.steps.iter().find(|step| (step.route, step.dial) == way).cloned()
        };
        let Some(step) = step else {
            return lock(&self.failures).clear(towards, due.route, due.dial);
        };
        let mut attempt = Attempt::new(self, &found, SocketOptions::default());
        let security = if way == site_trunk::WAY { Security::ByGateways(None) } else { Security::Tls(tls) };
        let opened = attempt.open(&step, security, None).await;
        // A gateway opens a stream without an answer of the other end.
        let works = match opened {
            Ok((mut carrier, _)) => match due.peer.node().filter(|_| way == site_trunk::WAY) {
                Some(node) => answered(&mut carrier, node, attempt.deadline).await,
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        match works {
            Ok(()) => {
                tracing::info!(node = %name, dial = %due.dial, "a dial works again");
                lock(&self.failures).clear(towards, due.route, due.dial);
            }
            Err(StepError::Next(reason)) => {
                tracing::debug!(node = %name, dial = %due.dial, %reason, "a dial still fails");
                let failure = Failure { route: due.route, dial: due.dial, reason: reason.text };
                lock(&self.failures).note(towards, failure, Instant::now());
            }
            // Nothing is known of the way.
            Err(
                StepError::Unsigned(_) | StepError::Final(_) | StepError::GivenUp | StepError::OtherOwner(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::time::SystemTime;

    use isthmus_identity::credentials::SigningRequest;
    use isthmus_identity::{Authority, Credentials, Identity};
    use isthmus_rpc::rendezvous::{Reply, ReplyWay, RequestWay, Stop, StopKind};
    use isthmus_service::Deadline;
    use isthmus_wire::preamble::{Answer, PREAMBLE_LEN, Preamble, Status as Answered};
    use isthmus_wire::proto::{self, attach_up};
    use isthmus_wire::ticket::TICKET_LEN;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tonic::Status;

    use isthmus_net::relay_places::RelayPlaces;

    use super::*;
    use crate::{ControlPlane, Signatures};

    const FAR: Ipv4Addr = Ipv4Addr::new(240, 64, 2, 1);

    /// A gateway whose plan is the trunk of the gateways, and which opens every stream.
    #[derive(Debug)]
    struct OwnGateway {
        address: String,
    }

    #[tonic::async_trait]
    impl ControlPlane for OwnGateway {
        fn site(&self) -> &str {
            "alpha"
        }

        async fn lookup(&self, _: &Peer, _: Deadline) -> Result<Arc<proto::LookupReply>, Status> {
            let way = proto::PlanWay { transport: proto::Transport::SiteTrunk.into(), ..Default::default() };
            let node = proto::Node { name: "n1.beta".to_owned(), ..proto::Node::default() };
            let plan = proto::Plan { ways: vec![way], encrypted: true, ..proto::Plan::default() };
            Ok(Arc::new(proto::LookupReply { node: Some(node), plan: Some(plan), facts: None }))
        }

        fn forget(&self, _: &Peer) {}

        async fn rendezvous(
            &self,
            _: &Peer,
            _: (RequestWay, Option<u16>),
            _: Deadline,
        ) -> Result<Reply, Status> {
            let (address, ticket) = (self.address.clone(), [0; TICKET_LEN]);
            let stop = Stop { kind: StopKind::OwnSite, address, ticket, relay: None };
            Ok(Reply { way: ReplyWay::Stop(stop), gateways: Vec::new() })
        }

        async fn send(&self, _: attach_up::Kind) {}

        fn relay_places(&self) -> RelayPlaces {
            RelayPlaces::new(["127.0.0.0/8"])
        }
    }

    /// What the other end of a stream does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Far {
        Answers,
        EndsIt,
        IsSilent,
    }

    async fn gateway(far: Far) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; TICKET_LEN]).await.unwrap();
            if far == Far::EndsIt {
                return;
            }
            let mut preamble = [0; PREAMBLE_LEN];
            stream.read_exact(&mut preamble).await.unwrap();
            assert_eq!(Preamble::decode(&preamble).unwrap().0.destination, FAR);
            if far == Far::IsSilent {
                return std::future::pending().await;
            }
            stream.write_all(&Answer { status: Answered::UnknownJob }.encode(&[0; 32])).await.unwrap();
        });
        address
    }

    /// Tests that measure, which run one at a time.
    mod alone {
        use super::*;

        #[tokio::test]
        async fn the_trunk_of_the_gateways_works_again_when_the_other_agent_has_answered() {
            let authority = Authority::create("test", SystemTime::now()).unwrap();
            let identity = Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap();
            let request = SigningRequest::new().unwrap();
            let certificate = authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
            let own =
                Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1").unwrap();
            let tls = own.client_config(&[b"h2"]).unwrap();
            for far in [Far::Answers, Far::EndsIt, Far::IsSilent] {
                // The other cases have as long as they need.
                let limit = Duration::from_millis(if far == Far::IsSilent { 300 } else { 60_000 });
                let dialer = Dialer {
                    control: Arc::new(OwnGateway { address: gateway(far).await }),
                    address: String::new(),
                    rendezvous: Arc::default(),
                    outside: Arc::default(),
                    raw: None,
                    failures: Arc::default(),
                    signatures: Arc::new(Signatures::new(&own).unwrap()),
                };
                let ((route, dial), begun) = (site_trunk::WAY, Instant::now());
                let failure = Failure { route, dial, reason: "cut".to_owned() };
                let far_node = Peer::Node(FAR);
                lock(&dialer.failures).note((&far_node, "beta"), failure, begun);
                dialer.try_again(&Due { peer: far_node.clone(), route, dial }, &tls, limit).await;
                let left = lock(&dialer.failures).towards((&far_node, "beta"), begun);
                assert_eq!(left.is_empty(), far == Far::Answers, "{far:?}: {left:?}");
                assert!(begun.elapsed() < Duration::from_secs(5), "{far:?}");
            }
        }
    }
}

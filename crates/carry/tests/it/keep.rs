//! A trunk is kept: dialed anew when it is cut, until its other end has none any more.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::{
    By, Dialed, Embedding, First, Kept, Notice, Notices, Stream, Trunk, Undialed, keep,
};
use isthmus_identity::Identity;
use isthmus_identity::secured::Secured;
use isthmus_net::rails::{Rail, RailWay};
use isthmus_trunk::{Config, Purpose, Role, TrunkId};
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::common::rules::Exchanges;
use crate::common::{Agents, PATIENCE, counts, pair, plane};

const ID: TrunkId = TrunkId([3; 16]);

fn identity(name: &str) -> Identity {
    Identity::from_uri(&format!("isthmus:///agent/alpha/{name}/ada")).unwrap()
}

/// Dials carriers to a trunk in the same process.
struct Near {
    agents: Agents,
    far: Trunk,
    dials: AtomicUsize,
    rails: Vec<Rail>,
    /// The rail of each dial.
    dialed: Mutex<Vec<RailWay>>,
    /// Answers to the first dials, before any dial works.
    failures: Mutex<Vec<Undialed>>,
    /// Copies of the sockets of the last carrier.
    last: Mutex<Vec<std::net::TcpStream>>,
    opened_tx: mpsc::UnboundedSender<Stream>,
}

impl Near {
    async fn carrier(&self) -> Secured {
        let (near, far) = self.agents.secure(pair().await).await;
        let copy = |socket: &TcpStream| SockRef::from(socket).try_clone().unwrap().into();
        *self.last.lock().unwrap() = vec![copy(near.get_ref().0), copy(far.get_ref().0)];
        self.far.join(far.into_parts().0).await.unwrap();
        near
    }

    /// Cuts the last carrier, without an end of TLS.
    fn cut(&self) {
        for socket in &*self.last.lock().unwrap() {
            // The other end may have closed it by then.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Embedding for Near {
    type CarrierWay = ();

    fn peer(&self) -> String {
        "n2.alpha".to_owned()
    }

    fn dials(&self) -> bool {
        true
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<()>, Undialed> {
        self.dials.fetch_add(1, SeqCst);
        self.dialed.lock().unwrap().push(by.rail);
        let failure = self.failures.lock().unwrap().pop();
        match failure {
            Some(failure) => Err(failure),
            None => Ok(Dialed { tls: self.carrier().await, way: (), segment: by.segment }),
        }
    }

    fn opened(&self, stream: Stream) {
        self.opened_tx.send(stream).unwrap();
    }

    fn ended(&self) {}
}

/// A kept trunk with one carrier, its far end, and the streams that the far end opens.
struct Trunks {
    near: Arc<Near>,
    kept: Arc<Kept>,
    opened_rx: mpsc::UnboundedReceiver<Stream>,
    far: Trunk,
    far_notices: Notices,
    _planes: [Plane; 2],
}

impl Trunks {
    async fn new() -> Self {
        Self::with_rails(Vec::new()).await
    }

    async fn with_rails(rails: Vec<Rail>) -> Self {
        let planes = [plane(), plane()];
        let (far, far_notices) = planes[1].trunk(Config::new(Role::Acceptor, ID)).unwrap();
        let config = Config { further_rails: rails.len(), ..Config::new(Role::Initiator, ID) };
        let (trunk, notices) = planes[0].trunk(config).unwrap();
        let (opened_tx, opened_rx) = mpsc::unbounded_channel();
        let near = Arc::new(Near {
            agents: Agents::new(),
            far: far.clone(),
            dials: AtomicUsize::default(),
            rails,
            dialed: Mutex::default(),
            failures: Mutex::default(),
            last: Mutex::default(),
            opened_tx,
        });
        let kept = Arc::new(Kept::new((ID, true), trunk, identity("n2")));
        let (id, _) = kept.join(near.carrier().await, Vec::new()).await.unwrap();
        let first = First { id, dialed: Some(((), None)) };
        tokio::spawn(keep(near.clone(), kept.clone(), notices, (first, None)));
        Self { near, kept, opened_rx, far, far_notices, _planes: planes }
    }
}

impl Trunks {
    /// Waits until so many carriers were dialed, of which three carry bulk, and one carries small
    /// frames.
    async fn has_dialed(&self, dials: usize) {
        let there = async {
            loop {
                let carriers = self.far.status().await.unwrap().carriers;
                let of = |purpose| carriers.iter().filter(|it| it.status.purpose == purpose).count();
                let dialed = self.near.dials.load(SeqCst);
                if (dialed, of(Purpose::Small), of(Purpose::Bulk)) == (dials, 1, 3) {
                    break;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, there).await.expect("three carriers for bulk, one for small frames");
    }
}

#[tokio::test]
async fn a_cut_trunk_is_dialed_until_it_is_healed_and_its_streams_go_on() {
    let mut trunks = Trunks::new().await;
    let near = timeout(PATIENCE, trunks.kept.trunk.open()).await.unwrap().unwrap();
    let mut far = timeout(PATIENCE, trunks.far.open()).await.unwrap().unwrap();
    let other = timeout(PATIENCE, trunks.opened_rx.recv()).await.unwrap().unwrap();
    assert!(!trunks.kept.is_cut());
    let failed = || Undialed::Failed("no network".to_owned());
    *trunks.near.failures.lock().unwrap() = vec![failed(), failed()];
    let mut cut = trunks.kept.cut();
    trunks.near.cut();
    timeout(PATIENCE, cut.wait_for(Option::is_some)).await.unwrap().unwrap();
    other.send(b"during the cut");
    timeout(PATIENCE, cut.wait_for(Option::is_none)).await.unwrap().unwrap();
    let received = timeout(PATIENCE, far.receive::<14>()).await.unwrap().unwrap();
    assert_eq!(&received, b"during the cut");
    assert_eq!(trunks.near.dials.load(SeqCst), 3);
    let pauses = trunks.kept.pauses();
    assert!(pauses.count == 1 && pauses.total > Duration::from_secs(1), "{pauses:?}");
    drop(near);
    assert!(!trunks.kept.ended.is_cancelled());
}

impl Trunks {
    /// Begins to send in both directions over each of so many streams.
    async fn exchange(&mut self, streams: usize) -> Exchanges {
        let mut exchanges = Exchanges::in_bursts();
        for _ in 0..streams {
            let near = timeout(PATIENCE, self.kept.trunk.open()).await.unwrap().unwrap();
            // A stream is there for the other end once something was sent.
            near.send(b"it");
            let far = timeout(PATIENCE, async {
                loop {
                    if let Notice::Opened(stream) = self.far_notices.recv().await.unwrap() {
                        return stream;
                    }
                }
            });
            let mut far = far.await.unwrap();
            far.receive::<2>().await.unwrap();
            let (program, agent) = pair().await;
            let (other_program, other_agent) = pair().await;
            near.attach(agent.into_std().unwrap(), counts()).unwrap();
            far.attach(other_agent.into_std().unwrap(), counts()).unwrap();
            exchanges.add((program, other_program));
        }
        exchanges
    }
}

#[tokio::test]
async fn a_busy_trunk_gets_further_carriers() {
    let mut trunks = Trunks::new().await;
    let exchanges = trunks.exchange(3).await;
    // As many as streams, and one for small frames.
    trunks.has_dialed(3).await;
    trunks.near.cut();
    trunks.has_dialed(4).await;
    exchanges.stop().await;
    assert_eq!(trunks.near.dials.load(SeqCst), 4);
}

#[tokio::test]
async fn carriers_are_spread_over_rails() {
    let source = [10, 0, 0, 1].into();
    let mut trunks = Trunks::with_rails(vec![Rail { source, address: None }]).await;
    let exchanges = trunks.exchange(3).await;
    trunks.has_dialed(3).await;
    let ordinary = RailWay::default();
    let further = RailWay { source: Some(source), address: None };
    // The first carrier was there before; the one for small frames is dialed first.
    assert_eq!(trunks.near.dialed.lock().unwrap()[..2], [ordinary, further]);
    exchanges.stop().await;
}

#[tokio::test]
async fn a_cut_trunk_is_dialed_over_each_rail_in_turn() {
    let source = [10, 0, 0, 1].into();
    let trunks = Trunks::with_rails(vec![Rail { source, address: None }]).await;
    timeout(PATIENCE, trunks.kept.trunk.open()).await.unwrap().unwrap();
    let failed = || Undialed::Failed("no network".to_owned());
    *trunks.near.failures.lock().unwrap() = vec![failed(), failed()];
    let mut cut = trunks.kept.cut();
    // A trunk counts as cut until its first carrier works.
    timeout(PATIENCE, cut.wait_for(Option::is_none)).await.unwrap().unwrap();
    trunks.near.cut();
    timeout(PATIENCE, cut.wait_for(Option::is_some)).await.unwrap().unwrap();
    timeout(PATIENCE, cut.wait_for(Option::is_none)).await.unwrap().unwrap();
    let (ordinary, further) = (RailWay::default(), RailWay { source: Some(source), address: None });
    assert_eq!(*trunks.near.dialed.lock().unwrap(), [ordinary, further, ordinary]);
}

#[tokio::test]
async fn a_stream_is_reset_while_its_trunk_is_cut() {
    let trunks = Trunks::new().await;
    let stream = timeout(PATIENCE, trunks.kept.trunk.open()).await.unwrap().unwrap();
    let (mut program, agent) = pair().await;
    let running = stream.attach(agent.into_std().unwrap(), counts()).unwrap();
    let failed = |_| Undialed::Failed("no network".to_owned());
    *trunks.near.failures.lock().unwrap() = (0..1000).map(failed).collect();
    let mut cut = trunks.kept.cut();
    timeout(PATIENCE, cut.wait_for(Option::is_none)).await.unwrap().unwrap();
    trunks.near.cut();
    timeout(PATIENCE, cut.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert!(!running.is_over());
    running.reset();
    let ended = timeout(PATIENCE, program.read(&mut [0])).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let over = async {
        while !running.is_over() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, over).await.unwrap();
}

#[tokio::test]
async fn a_trunk_ends_when_its_other_end_has_none_any_more() {
    let mut trunks = Trunks::new().await;
    timeout(PATIENCE, trunks.kept.trunk.open()).await.unwrap().unwrap();
    *trunks.near.failures.lock().unwrap() = vec![Undialed::Never("no trunks any more".to_owned())];
    trunks.near.cut();
    timeout(PATIENCE, trunks.kept.ended.cancelled()).await.unwrap();
    // The far end isn't told: no carrier is left.
    trunks.far_notices.close();
    assert!(trunks.kept.trunk.open().await.is_err());
}

#[tokio::test]
async fn a_carrier_of_another_party_does_not_join() {
    let trunks = Trunks::new().await;
    let plane = plane();
    let (trunk, _notices) = plane.trunk(Config::new(Role::Initiator, ID)).unwrap();
    let kept = Kept::new((ID, true), trunk, identity("n3"));
    let refused = kept.join(trunks.near.carrier().await, Vec::new()).await.unwrap_err();
    assert!(refused.contains("n2") && refused.contains("n3"), "{refused}");
}

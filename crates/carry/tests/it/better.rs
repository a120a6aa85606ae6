//! A trunk leaves its way for a better one: make before break.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_carry::trunk::{
    Better, By, Dialed, Embedding, First, Kept, Notice, Stream, Trunk, Undialed, keep,
};
use isthmus_identity::Identity;
use isthmus_identity::secured::Secured;
use isthmus_trunk::{CarrierId, Config, Role, TrunkId};
use tokio::time::{sleep, timeout};

use crate::common::rules::Exchanges;
use crate::common::{Agents, PATIENCE, counts, pair, plane};

const ID: TrunkId = TrunkId([5; 16]);

/// Dials carriers to a trunk in the same process, as if by ways with numbers: the smaller the
/// number, the better the way.
struct Near {
    agents: Agents,
    far: Trunk,
    /// The number of the best way that works.
    best: Mutex<u32>,
    /// What carriers have begun to do, each with the number of its way.
    seen: Mutex<Vec<(&'static str, u32)>>,
    ids: Mutex<Vec<(CarrierId, u32)>>,
}

impl Near {
    async fn carrier(&self) -> Secured {
        let (near, far) = self.agents.secure(pair().await).await;
        self.far.join(far.into_parts().0).await.unwrap();
        near
    }

    async fn dialed(&self, way: u32) -> Dialed<u32> {
        Dialed { tls: self.carrier().await, way, segment: None }
    }

    fn note(&self, what: &'static str, way: u32) {
        self.seen.lock().unwrap().push((what, way));
    }
}

impl Embedding for Near {
    type CarrierWay = u32;

    fn peer(&self) -> String {
        "n2.alpha".to_owned()
    }

    fn dials(&self) -> bool {
        true
    }

    async fn dial(self: Arc<Self>, _: By) -> Result<Dialed<u32>, Undialed> {
        let best = *self.best.lock().unwrap();
        Ok(self.dialed(best).await)
    }

    async fn dial_better(
        self: Arc<Self>,
        than: Vec<u32>,
        _: Option<u16>,
    ) -> Option<Result<Better<u32>, Undialed>> {
        let best = *self.best.lock().unwrap();
        let outdone: Vec<_> = (0..than.len()).filter(|at| than[*at] > best).collect();
        if outdone.is_empty() {
            return None;
        }
        Some(Ok(Better { dialed: self.dialed(best).await, outdone }))
    }

    fn joined(&self, id: CarrierId, way: &u32) {
        self.ids.lock().unwrap().push((id, *way));
    }

    fn works(&self, _: CarrierId, way: Option<&u32>) {
        self.note("works", *way.unwrap());
    }

    fn carrier_ended(&self, id: CarrierId) {
        let way = self.ids.lock().unwrap().iter().find(|(joined, _)| *joined == id).unwrap().1;
        self.note("ended", way);
    }

    fn opened(&self, _: Stream) {}

    fn ended(&self) {}
}

#[tokio::test]
async fn a_carrier_by_a_better_way_takes_the_place_of_those_that_it_outdoes() {
    let planes = [plane(), plane()];
    let (far, mut far_notices) = planes[1].trunk(Config::new(Role::Acceptor, ID)).unwrap();
    let (trunk, notices) = planes[0].trunk(Config::new(Role::Initiator, ID)).unwrap();
    let near = Arc::new(Near {
        agents: Agents::new(),
        far: far.clone(),
        best: Mutex::new(2),
        seen: Mutex::default(),
        ids: Mutex::default(),
    });
    let peer = Identity::from_uri("isthmus:///agent/alpha/n2/ada").unwrap();
    let kept = Arc::new(Kept::new((ID, true), trunk, peer));
    let (id, _) = kept.join(near.carrier().await, Vec::new()).await.unwrap();
    near.joined(id, &2);
    tokio::spawn(keep(near.clone(), kept.clone(), notices, (First { id, dialed: Some((2, None)) }, None)));

    // Programs send at every moment.
    let stream = timeout(PATIENCE, kept.trunk.open()).await.unwrap().unwrap();
    stream.send(b"it");
    let other = async {
        loop {
            if let Notice::Opened(stream) = far_notices.recv().await.unwrap() {
                return stream;
            }
        }
    };
    let mut other = timeout(PATIENCE, other).await.unwrap();
    other.receive::<2>().await.unwrap();
    let ((program, agent), (other_program, other_agent)) = (pair().await, pair().await);
    stream.attach(agent.into_std().unwrap(), counts()).unwrap();
    other.attach(other_agent.into_std().unwrap(), counts()).unwrap();
    let mut exchanges = Exchanges::in_bursts();
    exchanges.add((program, other_program));

    *near.best.lock().unwrap() = 1;
    let left = async {
        loop {
            // Busy trunks have several carriers.
            let seen = near.seen.lock().unwrap().clone();
            let count = |what: &str, way: u32| seen.iter().filter(|one| **one == (what, way)).count();
            if count("works", 1) > 0 && count("works", 2) > 0 && count("ended", 2) == count("works", 2) {
                return seen;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let seen = timeout(PATIENCE, left).await.expect("the worse way is left");
    let place = |what: &str, way: u32| seen.iter().position(|one| *one == (what, way)).unwrap();
    assert!(place("works", 1) < place("ended", 2), "{seen:?}");
    exchanges.stop().await;
    assert_eq!((kept.is_cut(), kept.pauses().count), (false, 0));
}

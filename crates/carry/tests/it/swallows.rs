//! Ways that open connections and swallow what is large: a trunk over them is cut until what
//! was sent has arrived, and carriers with shorter segments are tried.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::accept::hello;
use isthmus_carry::trunk::{
    By, Dialed, Embedding, First, Kept, Notice, Notices, Pauses, Stream, Trunk, Undialed, keep,
};
use isthmus_identity::Identity;
use isthmus_identity::secured::Secured;
use isthmus_trunk::{CarrierId, Config, Role, TrunkId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

use crate::common::{Agents, PATIENCE, counts, filled, pair, plane};

const ID: TrunkId = TrunkId([4; 16]);
/// How many bytes a way that swallows brings: less than a large frame, and more than what opens a
/// trunk.
const BRINGS: usize = 4 << 10;

/// Which directions of the way swallow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swallows {
    Both,
    /// The direction from the end that the other one dials swallows.
    Back,
    /// Both directions swallow, and what is small as well.
    All,
}

impl Swallows {
    /// How many bytes a direction that swallows brings.
    fn brings(self) -> usize {
        if self == Self::All { 0 } else { BRINGS }
    }
}

/// Dials carriers by a way that swallows to a trunk in the same process.
struct Near {
    agents: Agents,
    far: Trunk,
    swallows: Swallows,
    /// The longest segment that passes, in bytes: packets with longer ones vanish.
    passes: AtomicU16,
    /// How many carriers have swallowed.
    vain: AtomicUsize,
    /// How often a carrier was found to work.
    works: AtomicUsize,
    segments: Mutex<Vec<Option<u16>>>,
    /// Streams that the far end has opened.
    opened: Mutex<Vec<Stream>>,
}

impl Near {
    async fn carrier(&self, segment: Option<u16>) -> Secured {
        let (near, network) = pair().await;
        let (other, far) = pair().await;
        let passes = self.passes.load(SeqCst);
        let is_bad = segment.unwrap_or(u16::MAX) > passes;
        self.vain.fetch_add(usize::from(is_bad), SeqCst);
        let begins = Arc::new(AtomicBool::new(false));
        let (near_in, near_out) = network.into_split();
        let (far_in, far_out) = other.into_split();
        let there = is_bad && self.swallows != Swallows::Back;
        let swallows = || (begins.clone(), self.swallows.brings());
        tokio::spawn(pass(near_in, far_out, there.then(swallows)));
        tokio::spawn(pass(far_in, near_out, is_bad.then(swallows)));
        let (near, far) = self.agents.secure((near, far)).await;
        // Its handshake may have been shorter.
        begins.store(true, SeqCst);
        tokio::spawn(accept(self.far.clone(), far));
        near
    }
}

/// Joins a carrier once its HELLO has come, as agents and gateways do. So the PING with the HELLO
/// is answered before anything large is sent.
async fn accept(trunk: Trunk, mut tls: Secured) {
    let Ok((_, first)) = hello(&mut tls).await else { return };
    let (mut parts, _) = tls.into_parts();
    parts.unread = [first, parts.unread].concat();
    trunk.join(parts).await.unwrap();
}

/// Passes bytes on. Once the way swallows, passes only so many more, since TCP brings nothing
/// behind a packet that vanishes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: Option<(Arc<AtomicBool>, usize)>) {
    let (mut chunk, mut brought) = ([0; BRINGS], 0);
    while let Ok(count) = from.read(&mut chunk).await
        && count > 0
    {
        let begun = swallows.as_ref().filter(|(begins, _)| begins.load(SeqCst));
        let passed = begun.map_or(count, |(_, brings)| count.min(brings - brought));
        if to.write_all(&chunk[..passed]).await.is_err() {
            return;
        }
        if passed < count {
            return std::future::pending().await;
        }
        brought += if begun.is_some() { count } else { 0 };
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

    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<()>, Undialed> {
        self.segments.lock().unwrap().push(by.segment);
        Ok(Dialed { tls: self.carrier(by.segment).await, way: (), segment: by.segment })
    }

    fn works(&self, _id: CarrierId, _way: Option<&()>) {
        self.works.fetch_add(1, SeqCst);
    }

    fn opened(&self, stream: Stream) {
        self.opened.lock().unwrap().push(stream);
    }

    fn ended(&self) {}
}

/// A kept trunk whose first carrier swallows, and its far end.
struct Trunks {
    near: Arc<Near>,
    kept: Arc<Kept>,
    far: Trunk,
    far_notices: Notices,
    _planes: [Plane; 2],
}

impl Trunks {
    async fn new(swallows: Swallows, passes: u16) -> Self {
        let planes = [plane(), plane()];
        let (far, far_notices) = planes[1].trunk(Config::new(Role::Acceptor, ID)).unwrap();
        let (trunk, notices) = planes[0].trunk(Config::new(Role::Initiator, ID)).unwrap();
        let near = Arc::new(Near {
            agents: Agents::new(),
            far: far.clone(),
            swallows,
            passes: AtomicU16::new(passes),
            vain: AtomicUsize::default(),
            works: AtomicUsize::default(),
            segments: Mutex::default(),
            opened: Mutex::default(),
        });
        let peer = Identity::from_uri("isthmus:///agent/alpha/n2/ada").unwrap();
        let kept = Arc::new(Kept::new((ID, true), trunk, peer));
        let (id, _) = kept.join(near.carrier(None).await, Vec::new()).await.unwrap();
        tokio::spawn(keep(
            near.clone(),
            kept.clone(),
            notices,
            (First { id, dialed: Some(((), None)) }, None),
        ));
        Self { near, kept, far, far_notices, _planes: planes }
    }

    /// The next stream that the near end opens.
    async fn opened(&mut self) -> Stream {
        let opened = async {
            loop {
                if let Notice::Opened(stream) = self.far_notices.recv().await.unwrap() {
                    return stream;
                }
            }
        };
        timeout(PATIENCE, opened).await.unwrap()
    }
}

/// Gives a stream a program's socket, and returns the program's end.
async fn program(stream: Stream) -> TcpStream {
    let (program, agent) = pair().await;
    stream.attach(agent.into_std().unwrap(), counts()).unwrap();
    program
}

#[tokio::test]
async fn segments_are_shortened_where_carriers_open_and_swallow() {
    let mut trunks = Trunks::new(Swallows::Both, 1240).await;
    let stream = timeout(PATIENCE, trunks.kept.trunk.open()).await.unwrap().unwrap();
    let (sent, mut got) = (filled(100_000), Vec::new());
    program(stream).await.write_all(&sent).await.unwrap();
    let mut far = program(trunks.opened().await).await;
    timeout(PATIENCE, far.read_to_end(&mut got)).await.expect("all arrives").unwrap();
    assert!(got == sent);
    let mut cut = trunks.kept.cut();
    timeout(PATIENCE, cut.wait_for(Option::is_none)).await.unwrap().unwrap();
    assert_eq!(trunks.near.segments.lock().unwrap()[0], Some(1240));
    assert!(!trunks.kept.swallows());
}

impl Trunks {
    /// Waits until a count of the near end has come so far. Meanwhile the trunk stays cut,
    /// since the same moment.
    async fn stays_cut(&self, since: Option<Instant>, count: &AtomicUsize, least: usize) {
        let swallows = self.near.swallows;
        let mut cut = self.kept.cut();
        let staying = async {
            loop {
                let is_over = count.load(SeqCst) >= least;
                assert_eq!(*cut.borrow_and_update(), since, "{swallows:?}");
                if is_over {
                    break;
                }
                let _ = timeout(Duration::from_millis(5), cut.changed()).await;
            }
        };
        timeout(PATIENCE, staying).await.expect("another carrier is dialed");
        assert!(self.kept.swallows(), "{swallows:?}");
    }

    /// Has the way swallow no more, after which the trunk works again.
    async fn heals(&self) {
        self.near.passes.store(u16::MAX, SeqCst);
        timeout(PATIENCE, self.kept.cut().wait_for(Option::is_none)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_trunk_stays_cut_while_carriers_open_and_swallow() {
    tokio::join!(stays_cut(Swallows::Both), stays_cut(Swallows::Back));
}

/// While only the far end sends, the trunk stays cut.
async fn stays_cut(swallows: Swallows) {
    let trunks = Trunks::new(swallows, 0).await;
    let stream = timeout(PATIENCE, trunks.far.open()).await.unwrap().unwrap();
    let mut program = program(stream).await;
    program.write_all(&filled(100_000)).await.unwrap();
    let works = &trunks.near.works;
    let first = async {
        while works.load(SeqCst) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, first).await.expect("what is small shows that the first carrier works");
    let since = *timeout(PATIENCE, trunks.kept.cut().wait_for(Option::is_some)).await.unwrap().unwrap();
    // The second one works as well, as far as that shows.
    trunks.stays_cut(since, works, 2).await;
    trunks.heals().await;
    assert_eq!(trunks.near.segments.lock().unwrap().len(), 2, "{swallows:?}: the third one heals it");
    assert_eq!(trunks.kept.pauses().count, 1, "{swallows:?}");
}

#[tokio::test]
async fn a_trunk_that_has_never_worked_is_cut_from_its_beginning_which_is_no_pause() {
    let trunks = Trunks::new(Swallows::All, 0).await;
    let since = *trunks.kept.cut().borrow();
    assert!(since.is_some_and(|since| since <= trunks.kept.made));
    trunks.stays_cut(since, &trunks.near.vain, 3).await;
    trunks.heals().await;
    assert_eq!(trunks.kept.pauses(), Pauses::default());
}

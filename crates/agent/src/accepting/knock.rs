//! Knocks: how an incoming connection reaches a program's `accept`.
//!
//! A knock is a connection over loopback to the program's port, from an address that
//! only the agent's user can bind ([`Sources`]). The kernel's own queue, `poll` and
//! `epoll` do the rest. The shim's `accept` recognises a knock by its source address,
//! and fetches the connection behind it by source address and port.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use isthmus_net::loopback::{Buffers, Sources};
use isthmus_service::exhausted::{self, Exhausted};
use isthmus_service::lock;
use isthmus_wire::preamble::Status;
use isthmus_wire::shim::Endpoint;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::watched::{Found, Look, Watched};

/// How long a listener's queue may stay full.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// The connection behind a knock.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The initiator's end, as its program sees it.
    pub peer: Endpoint,
    /// The acceptor's end, as its program sees it.
    pub local: Endpoint,
    /// The socket that takes the knock's place; none if the knock itself is the
    /// program's end of the connection.
    pub socket: Option<Held>,
}

/// A socket that a program is to get. Until the socket is taken, the agent watches whether anything
/// has come on it.
#[derive(Debug, Clone)]
pub(crate) struct Held(Arc<Mutex<Option<TcpStream>>>);

impl Held {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Takes the socket; `None` if it has been taken already. The agent keeps no copy: a copy would
    /// hold back the end of the connection.
    pub(crate) fn take(&self) -> Option<std::net::TcpStream> {
        lock(&self.0).take()?.into_std().ok()
    }

    /// Waits until the socket has data or its end to read. Never returns once the socket is taken.
    async fn readable(&self) {
        let readable = |context: &mut Context<'_>| match &*lock(&self.0) {
            Some(stream) => poll_readable(stream, context),
            None => Poll::Pending,
        };
        poll_fn(readable).await;
    }
}

/// Whether a socket has data, or its end.
///
/// That tokio says so isn't enough: it may be wrong, and is with a socket just accepted. The kernel
/// is asked by a call that takes nothing away. A call that peeks would take a reset, of which the
/// program is to read.
fn poll_readable(stream: &TcpStream, context: &mut Context<'_>) -> Poll<()> {
    while let Poll::Ready(ready) = stream.poll_read_ready(context) {
        let look = || {
            let mut asked = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
            match poll(&mut asked, PollTimeout::ZERO) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        };
        if ready.is_err() || stream.try_io(Interest::READABLE, look).is_ok() {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// Knocks that no `accept` has fetched yet, by source.
#[derive(Debug, Default)]
pub(crate) struct Knocks(Mutex<HashMap<SocketAddrV4, Unfetched>>);

#[derive(Debug)]
struct Unfetched {
    incoming_rx: oneshot::Receiver<Incoming>,
    /// Tells the task that waits with `past_rx` that the program has taken the knock past its shim;
    /// `None` once told, or if no task waits.
    past_tx: Option<oneshot::Sender<()>>,
    watched: Watched,
}

/// A knock that the kernel has put into the listener's queue.
#[derive(Debug)]
pub(crate) struct Knock {
    /// The agent's end of the knock.
    pub stream: TcpStream,
    /// The address from which the agent knocks, by which the shim names the knock.
    pub from: SocketAddrV4,
    /// Receives once the program has taken the knock past its shim.
    past_rx: oneshot::Receiver<()>,
    incoming_tx: oneshot::Sender<Incoming>,
}

impl Knocks {
    /// Knocks at a port. The program may accept at once, but its shim waits until
    /// [`Knock::admit`].
    ///
    /// # Errors
    /// The status for the initiator; `short` is called if a resource has run out.
    pub(crate) async fn knock(
        &self,
        sources: &Sources,
        (twin, port): (Ipv4Addr, u16),
        short: impl Fn(Exhausted),
    ) -> Result<Knock, Status> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Status::Refused,
            io::ErrorKind::TimedOut => Status::TimedOut,
            _ => {
                tracing::warn!(error = exhausted::text(&error), port, "cannot knock");
                Exhausted::of(&error).into_iter().for_each(&short);
                Status::Failed
            }
        };
        let to = SocketAddrV4::new(twin, port);
        let connecting = sources.connect(to.into(), Buffers::default(), |from| self.expect(from, to));
        let connected = tokio::time::timeout(DEADLINE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, mut expected) = connected.map_err(failed)?;
        let stream = TcpStream::from_std(stream).map_err(failed)?;
        let (incoming_tx, past_rx) = expected.ends.take().ok_or(Status::Failed)?;
        if let Some(unfetched) = lock(&self.0).get_mut(&expected.from) {
            unfetched.watched.queued(Instant::now());
        }
        Ok(Knock { stream, from: expected.from, past_rx, incoming_tx })
    }

    /// Records a knock from this address that is about to be made, for [`fetch`](Self::fetch) to
    /// wait for. Returns `None` if an earlier knock from there was not fetched yet.
    fn expect(&self, from: SocketAddrV4, to: SocketAddrV4) -> Option<Expected<'_>> {
        match lock(&self.0).entry(from) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                let (incoming_tx, incoming_rx) = oneshot::channel();
                let (past_tx, past_rx) = oneshot::channel();
                let watched = Watched::new(to);
                vacant.insert(Unfetched { incoming_rx, past_tx: Some(past_tx), watched });
                Some(Expected { knocks: self, from, ends: Some((incoming_tx, past_rx)) })
            }
        }
    }

    /// Waits for the connection behind the knock from this address. Returns `None` if the agent did
    /// not knock from there, or the initiator has left.
    pub(crate) async fn fetch(&self, from: SocketAddrV4) -> Option<Incoming> {
        let unfetched = lock(&self.0).remove(&from)?;
        tokio::time::timeout(DEADLINE, unfetched.incoming_rx).await.ok()?.ok()
    }

    /// Notes that the agent carries this connection on its knock. A shim may still fetch its names.
    pub(crate) fn carried(&self, from: SocketAddrV4, (peer, local): (Endpoint, Endpoint)) {
        if let Some(unfetched) = lock(&self.0).get_mut(&from) {
            let (incoming_tx, incoming_rx) = oneshot::channel();
            // The channel has room for one value.
            let _ = incoming_tx.send(Incoming { peer, local, socket: None });
            (unfetched.incoming_rx, unfetched.past_tx) = (incoming_rx, None);
        }
    }

    /// At most `most` of the knocks whose next look is due.
    pub(crate) fn to_look_at(&self, now: Instant, most: usize) -> Vec<(SocketAddrV4, Watched)> {
        let unfetched = lock(&self.0);
        let due = unfetched.iter().filter(|(_, unfetched)| unfetched.watched.is_due(now));
        due.take(most).map(|(from, unfetched)| (*from, unfetched.watched)).collect()
    }

    /// Notes where a look has found the knock from this address. Returns whether this look is the
    /// first to show that a program has taken the knock past its shim.
    pub(crate) fn found(&self, from: SocketAddrV4, found: Found, now: Instant) -> bool {
        let mut all = lock(&self.0);
        let Some(unfetched) = all.get_mut(&from) else { return false };
        match unfetched.watched.look(found, now) {
            Look::Goes => {
                all.remove(&from);
                false
            }
            Look::Stays => false,
            Look::IsPast => {
                if let Some(past_tx) = unfetched.past_tx.take() {
                    // On a knock that is the connection itself nobody waits.
                    let _ = past_tx.send(());
                }
                true
            }
        }
    }

    /// Drops a knock that was not fetched; returns its connection, if it was
    /// admitted.
    pub(crate) fn forget(&self, from: SocketAddrV4) -> Option<Incoming> {
        lock(&self.0).remove(&from)?.incoming_rx.try_recv().ok()
    }
}

/// A knock that is being made. If it fails, dropping this forgets it.
struct Expected<'a> {
    knocks: &'a Knocks,
    from: SocketAddrV4,
    /// The sender of the connection, and the receiver of the news that the knock was taken past its
    /// shim; `None` once the knock was made.
    ends: Option<(oneshot::Sender<Incoming>, oneshot::Receiver<()>)>,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if self.ends.is_some() {
            self.knocks.forget(self.from);
        }
    }
}

impl Knock {
    /// Passes the connection to the shim. Returns the agent's end of the knock, and a receiver that
    /// hears if the program takes the knock past its shim.
    ///
    /// To be called only after the answer "connected" was sent: from here on the program may write
    /// to the socket.
    pub(crate) fn admit(self, incoming: Incoming) -> (TcpStream, oneshot::Receiver<()>) {
        // If the program has closed its listener, this drops the socket, too.
        let _ = self.incoming_tx.send(incoming);
        (self.stream, self.past_rx)
    }
}

/// Waits until the program's end of a knock is closed: by its shim, which has put `held` in its
/// place, or with the listener.
///
/// If a listener has `TCP_DEFER_ACCEPT`, the kernel holds a connection back until data has come. On
/// a knock no data comes. So when the first data for the program arrives, the agent sends a byte on
/// the knock. The byte is urgent data, which nobody reads by mistake.
pub(crate) async fn until_closed(knock: &TcpStream, held: &Held) {
    let mut byte = [0];
    tokio::select! {
        biased;
        _ = knock.peek(&mut byte) => return,
        () = held.readable() => {}
    }
    // The knock may be closed by now.
    let _ = SockRef::from(knock).send_out_of_band(&[0]);
    let _ = knock.peek(&mut byte).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::os::fd::AsRawFd as _;

    use isthmus_wire::address::is_agents;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const INITIATOR: Endpoint = Endpoint { address: Ipv4Addr::new(240, 64, 2, 1), port: 7 };

    #[tokio::test]
    async fn a_knock_is_fetched_once_by_its_source_and_only_after_admission() {
        let listener = TcpListener::bind("127.64.9.9:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let knock = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), port), |_| ()).await.unwrap();
        let (_accepted, SocketAddr::V4(from)) = listener.accept().await.unwrap() else { panic!() };
        assert!(is_agents(*from.ip()) && from == knock.from, "{from}");
        let elsewhere = SocketAddrV4::new(*from.ip(), from.port() ^ 1);
        assert!(knocks.fetch(elsewhere).await.is_none(), "the same address, another port");
        let admit = async {
            tokio::task::yield_now().await;
            knock.admit(Incoming { peer: INITIATOR, local: Endpoint::NONE, socket: None })
        };
        let (incoming, _end) = tokio::join!(knocks.fetch(from), admit);
        assert_eq!(incoming.unwrap().peer, INITIATOR);
        assert!(knocks.fetch(from).await.is_none());
    }

    #[tokio::test]
    async fn who_takes_a_knock_past_its_shim_is_told_and_may_still_fetch_names() {
        let listener = TcpListener::bind("127.64.9.9:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let knock = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), port), |_| ()).await.unwrap();
        let from = knock.from;
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let held = Held::new(socket);
        let incoming = Incoming { peer: INITIATOR, local: Endpoint::NONE, socket: Some(held.clone()) };
        let (_end, past_rx) = knock.admit(incoming);
        let mut now = Instant::now();
        assert!(knocks.to_look_at(now, 9).is_empty(), "it was made just now");
        for (found, is_past) in [(Found::Queued, false), (Found::Accepted, false), (Found::Accepted, true)] {
            now += Duration::from_secs(1);
            assert_eq!(knocks.to_look_at(now, 9)[0].1.to.port(), port);
            assert_eq!(knocks.found(from, found, now), is_past);
        }
        past_rx.await.unwrap();
        assert!(held.take().is_some());
        knocks.carried(from, (INITIATOR, Endpoint::NONE));
        let incoming = knocks.fetch(from).await.unwrap();
        assert!(incoming.socket.is_none() && incoming.peer == INITIATOR);
        assert!(lock(&knocks.0).is_empty());
    }

    /// The kernel doesn't have a knock in the listener's queue yet. That says nothing of the
    /// program.
    #[tokio::test]
    async fn a_knock_at_a_full_queue_is_looked_at_once_it_is_in() {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&"127.64.9.9:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listener.listen(0).unwrap();
        let at = listener.local_addr().unwrap().as_socket().unwrap();
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let _filler = TcpStream::connect(at).await.unwrap();
        let late = || Instant::now() + DEADLINE;
        let knocking = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), at.port()), |_| ());
        tokio::pin!(knocking);
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut knocking).await.is_err(), "no room");
        assert!(knocks.to_look_at(late(), 9).is_empty());
        drop(listener.accept().unwrap());
        let knock = knocking.await.unwrap();
        assert_eq!(knocks.to_look_at(late(), 9)[0].0, knock.from);
    }

    /// A listener that accepts a connection only once it has data (`TCP_DEFER_ACCEPT`), and its
    /// port. It waits longer than any test.
    fn deferring() -> (TcpListener, u16) {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let seconds: libc::c_int = 600;
        // SAFETY: the value is an int, and as long as is said.
        let set = unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_DEFER_ACCEPT,
                (&raw const seconds).cast(),
                size_of_val(&seconds) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        listener.bind(&"127.64.9.9:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listener.listen(8).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener.into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// The knock arrives with the first data of the connection, or with its end. No data comes on
    /// the knock.
    #[tokio::test]
    async fn a_listener_that_waits_for_data_accepts_the_knock_with_it() {
        let (listener, port) = deferring();
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        for how in ["data", "end", "reset"] {
            let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut initiator = TcpStream::connect(outside.local_addr().unwrap()).await.unwrap();
            let held = Held::new(outside.accept().await.unwrap().0);
            let knock = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), port), |_| ()).await.unwrap();
            let from = knock.from;
            let (end, _) =
                knock.admit(Incoming { peer: INITIATOR, local: Endpoint::NONE, socket: Some(held.clone()) });
            let watching = tokio::spawn(async move { until_closed(&end, &held).await });
            // Long enough for the kernel, which sends nothing again before 1 s.
            let early = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
            assert!(early.is_err(), "accepted before there was data");
            match how {
                "data" => initiator.write_all(b"x").await.unwrap(),
                "end" => initiator.shutdown().await.unwrap(),
                _ => SockRef::from(&initiator).set_linger(Some(Duration::ZERO)).unwrap(),
            }
            // The initiator's socket goes on, or is reset here.
            let initiator = (how != "reset").then_some(initiator);
            let accepted = tokio::time::timeout(DEADLINE * 6, listener.accept()).await;
            let (knock, peer) = accepted.expect("with the data").unwrap();
            assert_eq!(peer, SocketAddr::V4(from));
            let knock = knock.into_std().unwrap();
            let nothing = std::io::Read::read(&mut &knock, &mut [0; 8]);
            assert_eq!(nothing.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
            let socket = knocks.fetch(from).await.unwrap().socket.unwrap();
            let (socket, again) = (socket.take(), socket.take());
            let mut socket = TcpStream::from_std(socket.unwrap()).unwrap();
            assert!(again.is_none());
            let mut bytes = Vec::new();
            drop(knock);
            watching.await.unwrap();
            drop(initiator);
            let end = socket.read_to_end(&mut bytes).await.map_err(|error| error.kind());
            let is_reset = end == Err(io::ErrorKind::ConnectionReset);
            assert_eq!(
                (bytes.as_slice(), is_reset),
                (if how == "data" { b"x" } else { b"".as_slice() }, how == "reset")
            );
        }
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let (knocks, sources) = (Knocks::default(), Sources::bind().unwrap());
        let refused = knocks.knock(&sources, (Ipv4Addr::new(127, 64, 9, 9), 1), |_| ()).await;
        assert_eq!(refused.unwrap_err(), Status::Refused);
        assert!(lock(&knocks.0).is_empty());
    }
}

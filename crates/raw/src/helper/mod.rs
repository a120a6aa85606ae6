//! The helper process: it has one thread and serves one agent.

mod rights;
mod sockets;
mod tap;

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use isthmus_raw::message::{self, MAX_LEN, Reply, Request};
use isthmus_raw::permit::{permitted, port_permitted};
use isthmus_raw::rate::Rate;
use isthmus_raw::{Syn, syn};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SockType as SockTypeOption;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrStorage, connect,
    getsockname, getsockopt, recvmsg, send, sendto, socket,
};

use tap::Tap;

/// How long a SYN may take to leave.
const SYN_WITHIN: Duration = Duration::from_secs(2);
/// How long the tap stays open after the last connect was begun, even if no request waits. Opening
/// and closing it costs more than filtering a packet. But an open tap filters every packet that
/// leaves the host.
const TAP_LINGERS: Duration = Duration::from_secs(1);
/// Most connects that may be pending at once.
const MAX_WAITING: usize = 4096;
const TOO_MANY: &str = "the agent makes more than 2,000 requests per second";

/// Serves the agent at the other end of a socket, until the agent closes it.
///
/// # Errors
/// If the other end is no agent of this version, or the connection to it fails.
pub(crate) fn run(agent: impl AsFd) -> io::Result<()> {
    if getsockopt(&agent, SockTypeOption) != Ok(SockType::SeqPacket) {
        return Err(io::Error::other(
            "it is started by `isthmus agent`, not by hand; see isthmus-raw --help",
        ));
    }
    let has_right = rights::keep_only_raw();
    let Some((id, Request::Listen, Some(listener))) = receive(&agent)? else {
        return Err(io::Error::other("the first message must come with a listener"));
    };
    let started = has_right.and_then(|()| {
        let raw = raw_socket()?;
        sockets::check(&listener, &raw)?;
        sockets::listens_at(&listener)?;
        Ok(raw)
    });
    let reply = started.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
    answer(&agent, id, &reply)?;
    let Ok(raw) = started else { return Ok(()) };
    let now = Instant::now();
    let mut helper = Helper {
        agent,
        listener,
        raw,
        tap: None,
        needed: now,
        waiting: HashMap::new(),
        start: now,
        connects: Rate::default(),
        injections: Rate::default(),
    };
    while helper.turn()? {}
    Ok(())
}

/// The two ends of a connection: this host's, and the other host's.
type Ends = (SocketAddrV4, SocketAddrV4);

struct Helper<A> {
    agent: A,
    /// The agent's listener. While it is open and listens, no other user's socket gets
    /// what is injected for it.
    listener: OwnedFd,
    /// Raw socket by which packets are injected.
    raw: OwnedFd,
    /// Captures outgoing SYNs. Open while a request waits for its SYN, and for [`TAP_LINGERS`]
    /// after the last request.
    tap: Option<Tap>,
    /// When the last connect was begun, which needs the tap.
    needed: Instant,
    /// Connects whose SYN hasn't been captured yet, by their ends: the number of the request, and
    /// its deadline.
    waiting: HashMap<Ends, (u64, Instant)>,
    start: Instant,
    connects: Rate,
    injections: Rate,
}

impl<A: AsFd> Helper<A> {
    /// Handles the next events; `false` once the agent has ended.
    fn turn(&mut self) -> io::Result<bool> {
        let mut polled = vec![PollFd::new(self.agent.as_fd(), PollFlags::POLLIN)];
        polled.extend(self.tap.as_ref().map(|tap| PollFd::new(tap.as_fd(), PollFlags::POLLIN)));
        let timeout = if self.tap.is_some() { PollTimeout::from(200_u8) } else { PollTimeout::NONE };
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| polled.get(at).is_some_and(|polled| polled.any().unwrap_or(true));
        let (asked, seen) = (ready(0), ready(1));
        if seen {
            self.look()?;
        }
        if asked {
            let Some((id, request, descriptor)) = receive(&self.agent)? else { return Ok(false) };
            match (request, descriptor) {
                (Request::Connect(to), Some(socket)) => self.connect(id, to, &socket)?,
                (Request::Inject(packet), _) => {
                    let done = self.inject(&packet);
                    answer(&self.agent, id, &done)?;
                }
                (Request::Connect(_) | Request::Listen, _) => {
                    answer(&self.agent, id, &Err("the request doesn't fit".to_owned()))?;
                }
            }
        }
        self.expire()?;
        Ok(true)
    }

    /// Connects the agent's socket. The reply has this connection's SYN only, so
    /// the agent doesn't learn of other connections.
    fn connect(&mut self, id: u64, to: SocketAddrV4, socket: &OwnedFd) -> io::Result<()> {
        match self.begin(to, socket) {
            Ok(ends) => {
                self.needed = Instant::now();
                self.waiting.insert(ends, (id, self.needed + SYN_WITHIN));
                self.look()
            }
            Err(reason) => answer(&self.agent, id, &Err(reason)),
        }
    }

    fn begin(&mut self, to: SocketAddrV4, socket: &OwnedFd) -> Result<Ends, String> {
        sockets::check(socket, &self.raw)?;
        let failed = |error: Errno| format!("cannot connect to {to}: {}", error.desc());
        let local = || getsockname::<SockaddrIn>(socket.as_raw_fd()).map(SocketAddrV4::from).map_err(failed);
        let bound = local()?;
        if bound.port() != 0 {
            port_permitted(bound).map_err(|refused| refused.to_string())?;
        }
        if !self.connects.take(self.start.elapsed()) {
            return Err(TOO_MANY.to_owned());
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(format!("{MAX_WAITING} connects are pending already"));
        }
        if self.tap.is_none() {
            self.tap = Some(Tap::open().map_err(|error| format!("cannot open a packet socket: {error}"))?);
        }
        match connect(socket.as_raw_fd(), &SockaddrIn::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok((local()?, to))
    }

    /// Reads the captured packets, and answers the requests that they belong to.
    fn look(&mut self) -> io::Result<()> {
        while let Some(packet) = self.tap.as_ref().and_then(Tap::next) {
            let Ok(syn) = Syn::parse(&packet) else { continue };
            if let Some((id, _)) = self.waiting.remove(&(syn.source, syn.destination)) {
                answer(&self.agent, id, &Ok(syn.to_bytes()))?;
            }
        }
        Ok(())
    }

    /// Injects a SYN into this host's IP stack over loopback. The kernel treats it as a SYN that
    /// has arrived, with its addresses unchanged.
    fn inject(&mut self, packet: &[u8]) -> Reply {
        let syn = Syn::parse(packet).map_err(|error| format!("the packet to inject is no SYN: {error}"))?;
        if !self.injections.take(self.start.elapsed()) {
            return Err(TOO_MANY.to_owned());
        }
        let own = own_addresses().map_err(|error| format!("cannot list this host's addresses: {error}"))?;
        permitted(&syn, sockets::listens_at(&self.listener)?, &own).map_err(|refused| refused.to_string())?;
        // The packet is written anew from the parsed fields, not from the received bytes.
        let packet = syn.to_bytes();
        let to = SockaddrIn::from(syn.destination);
        sendto(self.raw.as_raw_fd(), &packet, &to, MsgFlags::empty())
            .map(|_| Vec::new())
            .map_err(|error| format!("cannot put a segment into this host's stack: {}", error.desc()))
    }

    /// Drops expired requests, and closes the tap when no request needs it.
    fn expire(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for (_, (id, _)) in self.waiting.extract_if(|_, (_, until)| *until <= now) {
            let reason =
                format!("no SYN left this node within {SYN_WITHIN:?}; does a filter of its own drop it?");
            answer(&self.agent, id, &Err(reason))?;
        }
        if self.waiting.is_empty() && now.duration_since(self.needed) > TAP_LINGERS {
            self.tap = None;
        }
        Ok(())
    }
}

/// The agent's next message and its descriptor; `None` once the agent has ended.
fn receive(agent: &impl AsFd) -> io::Result<Option<(u64, Request, Option<OwnedFd>)>> {
    let mut bytes = [0; MAX_LEN];
    let mut control = cmsg_space!([std::os::fd::RawFd; 1]);
    let mut data = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = loop {
        match recvmsg::<SockaddrStorage>(agent.as_fd().as_raw_fd(), &mut data, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let length = received.bytes;
    let mut descriptor = None;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = message {
            for raw in descriptors {
                descriptor = Some(rights::owned(raw));
            }
        }
    }
    let Some(message) = bytes.get(..length).filter(|message| !message.is_empty()) else { return Ok(None) };
    let (id, request) = Request::decode(message).map_err(io::Error::other)?;
    Ok(Some((id, request, descriptor)))
}

fn answer(agent: &impl AsFd, id: u64, reply: &Reply) -> io::Result<()> {
    let bytes = message::encode_reply(id, reply);
    match send(agent.as_fd().as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL) {
        // The agent has ended, which the next turn notices.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A socket that sends IPv4 packets with their headers (raw(7)).
fn raw_socket() -> Result<OwnedFd, String> {
    let made = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        nix::sys::socket::SockProtocol::Raw,
    );
    made.map_err(|error| format!("cannot open a raw socket: {}", error.desc()))
}

fn own_addresses() -> nix::Result<Vec<Ipv4Addr>> {
    let interfaces = nix::ifaddrs::getifaddrs()?;
    Ok(interfaces.filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip())).collect())
}

const _: () = assert!(syn::MAX_LEN + 9 <= MAX_LEN);

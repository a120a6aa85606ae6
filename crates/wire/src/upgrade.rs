//! What a service hands to the program that takes its place in the same
//! process: the layout of a sealed memory file, and the line by which a program says
//! which versions of it it understands.
//!
//! Both are read by another release of isthmus than the one that wrote them. Descriptors
//! are numbers of the process, which keeps them over `execve(2)`.
//!
//! Integers are big-endian.
//!
//! ```text
//! State
//!  0  4B magic "ISUP"
//!  4 u16 VERSION
//!  6  u8 service: 0 gateway, 1 relay, 2 agent
//!  7  u8 number of listeners
//!  8 u32 number of pairs
//! 12 u64 connections carried so far
//! 20 u64 bytes carried so far
//! 28     listeners, then pairs
//!
//! Listener, 27 bytes
//!  0 u32 descriptor
//!  4  u8 4 or 6
//!  5 16B IP address as configured; IPv4 in the first four, then zero
//! 21 u16 port as configured
//! 23 u32 scope id, zero for IPv4
//!
//! Pair: its two sockets, then the flow from each to the other
//!
//! Socket of a pair, 5 bytes
//!  0 u32 descriptor of the socket
//!  4  u8 1: urgent data has come; 2: it has failed
//!
//! Flow
//!  0  u8 1: its source has ended; 2: it has ended as a whole
//!  1  u8 what is read and not yet written: 0 nothing, 1 bytes, 2 in a pipe
//!  2     bytes:  u32 length, the bytes
//!        a pipe: u32 descriptor to read, u32 descriptor to write, u32 length
//! ```

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;

use crate::{DecodeError, array};

/// The version in which a state is written.
pub const VERSION: u16 = 1;
/// The versions in which a state can be read.
pub const UNDERSTOOD: RangeInclusive<u16> = VERSION..=VERSION;
/// Most bytes of a state: 4,096 pairs of which both directions hold half a buffer each.
pub const MAX_BYTES: usize = 256 << 20;
/// Most listeners that a state may have.
pub const MAX_LISTENERS: usize = 8;
/// Most pairs: as many as a relay splices at once.
pub const MAX_PAIRS: usize = 1 << 19;
/// Most bytes that a single flow holds outside a pipe.
pub const MAX_HELD_BYTES: usize = 1 << 20;

const NAME: &str = "state of an upgrade";
const MAGIC: [u8; 4] = *b"ISUP";
const HEAD_LEN: usize = 28;
/// Bytes of an encoded pair that holds nothing, the shortest pair.
const LEAST_PAIR: usize = 14;
/// The lowest descriptor that may be handed over. Those below are a program's input, output and
/// errors.
const FIRST_DESCRIPTOR: u32 = 3;

const URGENT: u8 = 1;
const FAILED: u8 = 2;
const SOURCE_ENDED: u8 = 1;
const ENDED: u8 = 2;

/// The service whose state is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// The gateway of a site.
    Gateway = 0,
    /// A relay, with the connections that it splices.
    Relay = 1,
    /// A node's agent, which hands nothing over but its process.
    Agent = 2,
}

/// A listening socket that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// The descriptor of the socket.
    pub descriptor: u32,
    /// The address that the configuration names. Its port may be 0, for any.
    pub configured: SocketAddr,
}

/// What an open descriptor must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A socket that is connected.
    Socket,
    /// The end of a pipe to read from.
    PipeRead,
    /// The end of a pipe to write to.
    PipeWrite,
}

/// A socket of a pair. `D` is the type of its descriptor: its number, or what owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PairSocket<D = u32> {
    /// The descriptor of the socket.
    pub descriptor: D,
    /// Whether urgent data has come, so that splice(2) may not read from the socket.
    pub urgent: bool,
    /// Whether the kernel has reported an error of the socket.
    pub failed: bool,
}

/// What a direction has read and not yet written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Held<D = u32> {
    /// All that was read has been written.
    #[default]
    Nothing,
    /// These bytes, which are at least one.
    Bytes(Vec<u8>),
    /// Bytes in a pipe, at least one.
    Piped {
        /// Descriptor of the end to read from.
        read: D,
        /// Descriptor of the end to write to.
        write: D,
        /// How many bytes the pipe has.
        length: u32,
    },
}

/// A direction of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flow<D = u32> {
    /// Whether the direction's source has ended in order, so that nothing more is read from it.
    pub source_ended: bool,
    /// Whether the end of the source was passed on, too. Nothing is held then.
    pub ended: bool,
    /// What waits to be written.
    pub held: Held<D>,
}

/// Two sockets whose bytes go to each other. Flow `i` goes from end `i` to the opposite end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pair<D = u32> {
    /// The two sockets of the pair.
    pub ends: [PairSocket<D>; 2],
    /// The two directions; each begins at the end with its index.
    pub flows: [Flow<D>; 2],
}

/// Everything that a service hands over to the program that takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The service that hands this over.
    pub service: Service,
    /// Connections that the service has carried so far, those that still run included.
    pub connections: u64,
    /// Bytes that the service has carried so far.
    pub bytes: u64,
    /// The sockets on which the service listens.
    pub listeners: Vec<Listener>,
    /// The connections that the service still splices.
    pub pairs: Vec<Pair>,
}

impl State {
    /// All descriptors, in the order in which they are written.
    pub fn descriptors(&self) -> impl Iterator<Item = u32> {
        let listeners = self.listeners.iter().map(|listener| listener.descriptor);
        listeners.chain(self.pairs.iter().flat_map(Pair::descriptors))
    }

    /// The whole state as bytes.
    ///
    /// # Errors
    /// If the state breaks a bound, so that [`decode`](Self::decode) would refuse it.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        check_count("listeners", self.listeners.len(), MAX_LISTENERS)?;
        check_count("pairs", self.pairs.len(), MAX_PAIRS)?;
        let mut out = Vec::with_capacity(HEAD_LEN + self.pairs.len() * LEAST_PAIR);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.push(self.service as u8);
        out.push(self.listeners.len() as u8);
        out.extend_from_slice(&(self.pairs.len() as u32).to_be_bytes());
        out.extend_from_slice(&self.connections.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        for listener in &self.listeners {
            listener.encode(&mut out);
        }
        for pair in &self.pairs {
            pair.encode(&mut out)?;
            check_count("bytes", out.len(), MAX_BYTES)?;
        }
        Ok(out)
    }

    /// Reads a state, which must be exactly these bytes. It encodes to the same bytes again.
    ///
    /// # Errors
    /// If the bytes are no state, or of a version that isn't [`UNDERSTOOD`]. If the state breaks a
    /// bound, or names a descriptor twice.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        check_count("bytes", bytes.len(), MAX_BYTES)?;
        let mut input = Input { left: bytes };
        if input.take::<4>()? != MAGIC {
            return Err(wrong("it doesn't begin with ISUP"));
        }
        let version = u16::from_be_bytes(input.take()?);
        if !UNDERSTOOD.contains(&version) {
            return Err(wrong(format!(
                "it has version {version}, and this program understands {} to {}",
                UNDERSTOOD.start(),
                UNDERSTOOD.end()
            )));
        }
        let service = match input.byte()? {
            0 => Service::Gateway,
            1 => Service::Relay,
            2 => Service::Agent,
            other => return Err(wrong(format!("unknown service {other}"))),
        };
        let listeners = usize::from(input.byte()?);
        check_count("listeners", listeners, MAX_LISTENERS)?;
        let pairs = input.number()? as usize;
        check_count("pairs", pairs, MAX_PAIRS)?;
        let connections = u64::from_be_bytes(input.take()?);
        let carried = u64::from_be_bytes(input.take()?);
        check_count("pairs for its length", pairs, input.left.len() / LEAST_PAIR)?;
        let listeners = (0..listeners).map(|_| Listener::decode(&mut input)).collect::<Result<_, _>>()?;
        let pairs = (0..pairs).map(|_| Pair::decode(&mut input)).collect::<Result<_, _>>()?;
        if !input.left.is_empty() {
            return Err(wrong(format!("{} bytes follow its end", input.left.len())));
        }
        let state = Self { service, connections, bytes: carried, listeners, pairs };
        state.check_descriptors()?;
        Ok(state)
    }

    /// Checks that no descriptor is named twice, as each gets an owner, and that none is a
    /// program's input, output or errors.
    fn check_descriptors(&self) -> Result<(), DecodeError> {
        let mut seen = HashSet::new();
        for descriptor in self.descriptors() {
            if descriptor < FIRST_DESCRIPTOR || i32::try_from(descriptor).is_err() {
                return Err(wrong(format!("{descriptor} is no descriptor to hand over")));
            }
            if !seen.insert(descriptor) {
                return Err(wrong(format!("descriptor {descriptor} occurs twice")));
            }
        }
        Ok(())
    }
}

impl Listener {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.descriptor.to_be_bytes());
        let mut address = [0; 16];
        let (family, scope) = match self.configured {
            SocketAddr::V4(v4) => {
                address[..4].copy_from_slice(&v4.ip().octets());
                (4, 0)
            }
            SocketAddr::V6(v6) => {
                address = v6.ip().octets();
                (6, v6.scope_id())
            }
        };
        out.push(family);
        out.extend_from_slice(&address);
        out.extend_from_slice(&self.configured.port().to_be_bytes());
        out.extend_from_slice(&scope.to_be_bytes());
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let descriptor = input.number()?;
        let family = input.byte()?;
        let address: [u8; 16] = input.take()?;
        let port = u16::from_be_bytes(input.take()?);
        let scope = input.number()?;
        let configured = match family {
            4 if address[4..] == [0; 12] && scope == 0 => {
                SocketAddr::new(IpAddr::V4(Ipv4Addr::from(array::<4>(&address, 0))), port)
            }
            6 => SocketAddrV6::new(Ipv6Addr::from(address), port, 0, scope).into(),
            _ => return Err(wrong(format!("an address of family {family} that can't be"))),
        };
        Ok(Self { descriptor, configured })
    }
}

impl<D> Pair<D> {
    /// Puts something else in place of each descriptor.
    ///
    /// # Errors
    /// The first error of `change`. What `change` has returned before is dropped.
    pub fn try_map<E, X>(self, mut change: impl FnMut(D, Kind) -> Result<E, X>) -> Result<Pair<E>, X> {
        let [one, other] = self.ends;
        let [there, back] = self.flows;
        Ok(Pair {
            ends: [one.try_map(&mut change)?, other.try_map(&mut change)?],
            flows: [there.try_map(&mut change)?, back.try_map(&mut change)?],
        })
    }
}

impl<D> PairSocket<D> {
    fn try_map<E, X>(self, change: &mut impl FnMut(D, Kind) -> Result<E, X>) -> Result<PairSocket<E>, X> {
        let descriptor = change(self.descriptor, Kind::Socket)?;
        Ok(PairSocket { descriptor, urgent: self.urgent, failed: self.failed })
    }
}

impl<D> Flow<D> {
    fn try_map<E, X>(self, change: &mut impl FnMut(D, Kind) -> Result<E, X>) -> Result<Flow<E>, X> {
        let held = match self.held {
            Held::Nothing => Held::Nothing,
            Held::Bytes(bytes) => Held::Bytes(bytes),
            Held::Piped { read, write, length } => {
                let (read, write) = (change(read, Kind::PipeRead)?, change(write, Kind::PipeWrite)?);
                Held::Piped { read, write, length }
            }
        };
        Ok(Flow { source_ended: self.source_ended, ended: self.ended, held })
    }
}

impl Pair {
    /// The descriptors of the pair: both sockets, then the pipes of its flows.
    pub fn descriptors(&self) -> impl Iterator<Item = u32> {
        let ends = self.ends.iter().map(|end| end.descriptor);
        let pipes = self.flows.iter().flat_map(|flow| match flow.held {
            Held::Piped { read, write, .. } => [Some(read), Some(write)],
            Held::Nothing | Held::Bytes(_) => [None, None],
        });
        ends.chain(pipes.flatten())
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        for end in &self.ends {
            out.extend_from_slice(&end.descriptor.to_be_bytes());
            out.push(if end.urgent { URGENT } else { 0 } | if end.failed { FAILED } else { 0 });
        }
        self.flows.iter().try_for_each(|flow| flow.encode(out))
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut pair = Self::default();
        for end in &mut pair.ends {
            let descriptor = input.number()?;
            let flags = input.flags(URGENT | FAILED)?;
            *end = PairSocket { descriptor, urgent: flags & URGENT > 0, failed: flags & FAILED > 0 };
        }
        for flow in &mut pair.flows {
            *flow = Flow::decode(input)?;
        }
        Ok(pair)
    }
}

impl Flow {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.push(if self.source_ended { SOURCE_ENDED } else { 0 } | if self.ended { ENDED } else { 0 });
        match &self.held {
            Held::Nothing => out.push(0),
            Held::Bytes(bytes) => {
                check_count("bytes of a flow", bytes.len(), MAX_HELD_BYTES)?;
                out.push(1);
                out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Held::Piped { read, write, length } => {
                out.push(2);
                for number in [read, write, length] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
        Ok(())
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let flags = input.flags(SOURCE_ENDED | ENDED)?;
        let held = match input.byte()? {
            0 => Held::Nothing,
            1 => {
                let length = input.number()? as usize;
                check_count("bytes of a flow", length, MAX_HELD_BYTES)?;
                Held::Bytes(input.some(length)?.to_vec())
            }
            2 => Held::Piped { read: input.number()?, write: input.number()?, length: input.number()? },
            other => return Err(wrong(format!("a flow that holds something of kind {other}"))),
        };
        let empty = match &held {
            Held::Nothing => false,
            Held::Bytes(bytes) => bytes.is_empty(),
            Held::Piped { length, .. } => *length == 0,
        };
        let flow = Self { source_ended: flags & SOURCE_ENDED > 0, ended: flags & ENDED > 0, held };
        if empty || flow.ended && (!flow.source_ended || flow.held != Held::Nothing) {
            return Err(wrong("a flow in a state that can't be"));
        }
        Ok(flow)
    }
}

/// The line that a program prints when it is asked whether it can take over.
pub fn answer() -> String {
    format!("isthmus upgrade {}-{}", UNDERSTOOD.start(), UNDERSTOOD.end())
}

/// The versions that a program understands, by the line that it has printed as its [`answer`].
///
/// # Errors
/// If the line is no such answer.
pub fn read_answer(line: &str) -> Result<RangeInclusive<u16>, DecodeError> {
    let versions = line.strip_prefix("isthmus upgrade ").and_then(|rest| rest.split_once('-'));
    let read = |text: &str| text.parse::<u16>().ok().filter(|number| number.to_string() == text);
    versions
        .and_then(|(first, last)| Some(read(first)?..=read(last)?))
        .ok_or_else(|| DecodeError::new("answer about an upgrade", "it isn't \"isthmus upgrade FIRST-LAST\""))
}

fn wrong(reason: impl Into<String>) -> DecodeError {
    DecodeError::new(NAME, reason)
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), DecodeError> {
    if count <= most { Ok(()) } else { Err(wrong(format!("{count} {what}, at most {most} are allowed"))) }
}

/// Bytes that are read from the front.
struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    fn some(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(length).ok_or_else(|| wrong("it ends too early"))?;
        self.left = left;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(array(self.some(N)?, 0))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn flags(&mut self, known: u8) -> Result<u8, DecodeError> {
        let flags = self.byte()?;
        if flags & !known == 0 { Ok(flags) } else { Err(wrong(format!("unknown flags {flags:#x}"))) }
    }
}

#[cfg(test)]
mod tests;

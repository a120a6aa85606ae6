//! Between a shim and its agent: one request and one reply per connection to
//! the job's Unix socket. The reply may carry a descriptor (`SCM_RIGHTS`).
//!
//! Both ends are on one machine, so integers are in native byte order.
//!
//! ```text
//! Request, 40 bytes                      Reply, 32 bytes
//!  0 u8  VERSION                          0 i32 errno, 0 for success
//!  1 u8  operation                        4 u8  Handover
//!  2 u16 port of the destination,         5 u8  1 for an IPv6 socket
//!        or of a listener
//!                                         6 [2] zero
//!  4 u32 virtual destination, knock, or   8 u32 peer's virtual address
//!        wait status of a process, or
//!        a signal
//!  8 u16 source port, 0 for any          12 u32 own virtual address
//! 10 u16 port of the knock               16 u16 peer's port
//! 12 u32 SO_SNDBUF, 0 for the default    18 u16 own port
//! 16 u32 SO_RCVBUF, 0 for the default    20 [12] zero
//! 20 u32 descriptor of a program, process
//!        id, rank, or daemon
//! 24 u64 SO_COOKIE of the descriptor
//! 32 u8  1 for an IPv6 socket
//! 33 [7] zero
//! ```
//!
//! A shim that closes the connection before the reply cancels its request.
//!
//! A process that is about to lose its way to the socket asks for a connection that stays
//! ([`Request::Stand`]). That has no reply. For each request the shim then makes a pair of
//! sockets, and sends the agent one of the two, with a byte.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::{DecodeError, array};

/// Version of the layouts in this file. An agent and the shim that it hands out always match.
pub(crate) const VERSION: u8 = 1;
/// Length of an encoded [`Request`], in bytes.
pub const REQUEST_LEN: usize = 40;
/// Length of an encoded [`Reply`], in bytes.
pub const REPLY_LEN: usize = 32;

/// A shim's request to its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Connect to a virtual address. The reply comes once the connection
    /// stands or has failed for good.
    Connect {
        /// Virtual address of the node to reach.
        destination: Ipv4Addr,
        /// Port the program there listens on.
        port: u16,
        /// Port the program bound its own socket to, or 0.
        source_port: u16,
        /// `SO_SNDBUF` as the program set it (half of what the kernel
        /// reports), or 0 if it never did.
        send_buffer: u32,
        /// `SO_RCVBUF` as the program set it (half of what the kernel reports), or 0 if it never
        /// did.
        receive_buffer: u32,
        /// Whether the program's socket is an IPv6 socket.
        is_v6: bool,
    },
    /// Fetch the connection behind a knock just accepted.
    Accept {
        /// Source address of the knock.
        knock: SocketAddrV4,
        /// `SO_COOKIE` of the accepted descriptor. If the descriptor stays in place, the cookie
        /// later names its ends.
        cookie: u64,
        /// Whether the listener is an IPv6 socket.
        is_v6: bool,
    },
    /// Name the ends of a handed-over socket that this process inherited over `exec`. The process
    /// has no record of the socket.
    Whois {
        /// `SO_COOKIE` of the socket.
        cookie: u64,
    },
    /// Examine a program that this process is about to start and that perhaps can't
    /// be carried. The reply means only that the agent has examined it.
    Starting {
        /// The descriptor at which this process has the program open.
        fd: u32,
    },
    /// This process is a rank, which a launcher or its daemon has started.
    Rank {
        /// The number of the rank.
        rank: u32,
    },
    /// This process is about to become a daemon of a launcher.
    Daemon {
        /// The daemon's place in [`DAEMONS`](crate::launchers::DAEMONS).
        daemon: u32,
    },
    /// This launcher or daemon got a signal that ends it. The reply means only that the agent
    /// knows.
    Signalled {
        /// The number of the signal (signal(7)).
        signal: u32,
        /// The id of the process that sent the signal; 0 for the kernel, as for a terminal.
        sender: u32,
    },
    /// This process, a rank, ends with status 0 after `MPI_Init`, without `MPI_Finalize`.
    Unfinished,
    /// A process that this launcher or daemon started has ended, by a signal or with a status other
    /// than 0, and this process hadn't signalled it. The reply means only that the agent knows.
    Ended {
        /// The id of the process that has ended.
        pid: u32,
        /// The status with which it ended, as wait(2) gives it.
        status: i32,
    },
    /// A process that this launcher or daemon started has ended with status 0, or after a signal
    /// from this process. Nobody waits for the reply.
    Collected {
        /// The id of the process that has ended.
        pid: u32,
    },
    /// Keep this connection: it brings sockets with further requests.
    Stand,
    /// Carry the connections of this process's listener at a port. The process is about to lose the
    /// calls by which it fetches them.
    Keep {
        /// Port of the listener.
        port: u16,
    },
    /// This process is about to lose all calls by which connections are made.
    Leave,
}

mod operation {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const ACCEPT: u8 = 2;
    pub(super) const WHOIS: u8 = 3;
    pub(super) const STARTING: u8 = 4;
    pub(super) const RANK: u8 = 5;
    pub(super) const ENDED: u8 = 6;
    pub(super) const DAEMON: u8 = 7;
    pub(super) const SIGNALLED: u8 = 8;
    pub(super) const UNFINISHED: u8 = 9;
    pub(super) const COLLECTED: u8 = 10;
    pub(super) const STAND: u8 = 11;
    pub(super) const KEEP: u8 = 12;
    pub(super) const LEAVE: u8 = 13;
}

impl Request {
    /// The request as bytes.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut out = [0; REQUEST_LEN];
        let mut put = |offset: usize, bytes: &[u8]| out[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(0, &[VERSION]);
        match *self {
            Self::Connect { destination, port, source_port, send_buffer, receive_buffer, is_v6 } => {
                put(1, &[operation::CONNECT]);
                put(2, &port.to_ne_bytes());
                put(4, &u32::from(destination).to_ne_bytes());
                put(8, &source_port.to_ne_bytes());
                put(12, &send_buffer.to_ne_bytes());
                put(16, &receive_buffer.to_ne_bytes());
                put(32, &[is_v6.into()]);
            }
            Self::Accept { knock, cookie, is_v6 } => {
                put(1, &[operation::ACCEPT]);
                put(4, &u32::from(*knock.ip()).to_ne_bytes());
                put(10, &knock.port().to_ne_bytes());
                put(24, &cookie.to_ne_bytes());
                put(32, &[is_v6.into()]);
            }
            Self::Whois { cookie } => {
                put(1, &[operation::WHOIS]);
                put(24, &cookie.to_ne_bytes());
            }
            Self::Starting { fd } => {
                put(1, &[operation::STARTING]);
                put(20, &fd.to_ne_bytes());
            }
            Self::Rank { rank } => {
                put(1, &[operation::RANK]);
                put(20, &rank.to_ne_bytes());
            }
            Self::Ended { pid, status } => {
                put(1, &[operation::ENDED]);
                put(4, &status.to_ne_bytes());
                put(20, &pid.to_ne_bytes());
            }
            Self::Daemon { daemon } => {
                put(1, &[operation::DAEMON]);
                put(20, &daemon.to_ne_bytes());
            }
            Self::Signalled { signal, sender } => {
                put(1, &[operation::SIGNALLED]);
                put(4, &signal.to_ne_bytes());
                put(20, &sender.to_ne_bytes());
            }
            Self::Unfinished => put(1, &[operation::UNFINISHED]),
            Self::Collected { pid } => {
                put(1, &[operation::COLLECTED]);
                put(20, &pid.to_ne_bytes());
            }
            Self::Stand => put(1, &[operation::STAND]),
            Self::Keep { port } => {
                put(1, &[operation::KEEP]);
                put(2, &port.to_ne_bytes());
            }
            Self::Leave => put(1, &[operation::LEAVE]),
        }
        out
    }

    /// Reads a request.
    ///
    /// # Errors
    /// If the version or the operation is unknown.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, DecodeError> {
        let cookie = u64::from_ne_bytes(array(bytes, 24));
        let address = Ipv4Addr::from(u32::from_ne_bytes(array(bytes, 4)));
        let number = u32::from_ne_bytes(array(bytes, 20));
        let port = u16::from_ne_bytes(array(bytes, 2));
        let is_v6 = bytes[32] != 0;
        match (bytes[0], bytes[1]) {
            (VERSION, operation::CONNECT) => Ok(Self::Connect {
                destination: address,
                port,
                source_port: u16::from_ne_bytes(array(bytes, 8)),
                send_buffer: u32::from_ne_bytes(array(bytes, 12)),
                receive_buffer: u32::from_ne_bytes(array(bytes, 16)),
                is_v6,
            }),
            (VERSION, operation::ACCEPT) => {
                let knock = SocketAddrV4::new(address, u16::from_ne_bytes(array(bytes, 10)));
                Ok(Self::Accept { knock, cookie, is_v6 })
            }
            (VERSION, operation::WHOIS) => Ok(Self::Whois { cookie }),
            (VERSION, operation::STARTING) => Ok(Self::Starting { fd: number }),
            (VERSION, operation::RANK) => Ok(Self::Rank { rank: number }),
            (VERSION, operation::ENDED) => {
                Ok(Self::Ended { pid: number, status: i32::from_ne_bytes(array(bytes, 4)) })
            }
            (VERSION, operation::DAEMON) => Ok(Self::Daemon { daemon: number }),
            (VERSION, operation::SIGNALLED) => {
                Ok(Self::Signalled { signal: u32::from_ne_bytes(array(bytes, 4)), sender: number })
            }
            (VERSION, operation::UNFINISHED) => Ok(Self::Unfinished),
            (VERSION, operation::COLLECTED) => Ok(Self::Collected { pid: number }),
            (VERSION, operation::STAND) => Ok(Self::Stand),
            (VERSION, operation::KEEP) => Ok(Self::Keep { port }),
            (VERSION, operation::LEAVE) => Ok(Self::Leave),
            (VERSION, other) => Err(DecodeError::new("shim request", format!("unknown operation {other}"))),
            (other, _) => {
                Err(DecodeError::new("shim request", format!("version {other}, this agent speaks {VERSION}")))
            }
        }
    }
}

/// What an agent hands over with a [`Reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Handover {
    /// No descriptor: the reply has an error, or only names.
    None = 0,
    /// A connected socket travels with the reply and takes the place of the
    /// program's descriptor.
    Socket = 1,
    /// The accepted knock is itself the connection and stays where it is.
    Keep = 2,
}

/// The address and port of one end of a connection, as the program sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Virtual address of the node.
    pub address: Ipv4Addr,
    /// Port of the program.
    pub port: u16,
}

impl Endpoint {
    /// 0.0.0.0:0, which stands for no endpoint.
    pub const NONE: Self = Self { address: Ipv4Addr::UNSPECIFIED, port: 0 };
}

/// An agent's reply to a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// 0 for success, or the `errno` that the program's call is to report.
    pub errno: i32,
    /// What the shim is to do with the program's descriptor.
    pub handover: Handover,
    /// The other end of the connection; [`Endpoint::NONE`] if the reply names none.
    pub peer: Endpoint,
    /// The program's own end of the connection; [`Endpoint::NONE`] if the reply names none.
    pub local: Endpoint,
    /// Whether the program has the socket for an IPv6 socket; only for [`Request::Whois`].
    pub is_v6: bool,
}

impl Reply {
    /// A reply that only reports an error.
    pub fn error(errno: i32) -> Self {
        Self { errno, handover: Handover::None, peer: Endpoint::NONE, local: Endpoint::NONE, is_v6: false }
    }

    /// The reply as bytes.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let mut out = [0; REPLY_LEN];
        out[0..4].copy_from_slice(&self.errno.to_ne_bytes());
        out[4] = self.handover as u8;
        out[5] = self.is_v6.into();
        out[8..12].copy_from_slice(&u32::from(self.peer.address).to_ne_bytes());
        out[12..16].copy_from_slice(&u32::from(self.local.address).to_ne_bytes());
        out[16..18].copy_from_slice(&self.peer.port.to_ne_bytes());
        out[18..20].copy_from_slice(&self.local.port.to_ne_bytes());
        out
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// If the kind of handover is unknown.
    pub fn decode(bytes: &[u8; REPLY_LEN]) -> Result<Self, DecodeError> {
        let end = |address: usize, port: usize| Endpoint {
            address: Ipv4Addr::from(u32::from_ne_bytes(array(bytes, address))),
            port: u16::from_ne_bytes(array(bytes, port)),
        };
        Ok(Self {
            errno: i32::from_ne_bytes(array(bytes, 0)),
            handover: match bytes[4] {
                0 => Handover::None,
                1 => Handover::Socket,
                2 => Handover::Keep,
                other => return Err(DecodeError::new("shim reply", format!("unknown handover {other}"))),
            },
            peer: end(8, 16),
            local: end(12, 18),
            is_v6: bytes[5] != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_round_trip() {
        for request in [
            Request::Connect {
                destination: Ipv4Addr::new(240, 64, 1, 2),
                port: 4711,
                source_port: 1024,
                send_buffer: 1 << 20,
                receive_buffer: 1 << 21,
                is_v6: true,
            },
            Request::Accept { knock: "127.128.4.1:40000".parse().unwrap(), cookie: u64::MAX, is_v6: false },
            Request::Whois { cookie: 1 << 40 },
            Request::Starting { fd: 3 },
            Request::Rank { rank: 70_000 },
            Request::Ended { pid: 4711, status: 9 },
            Request::Daemon { daemon: 2 },
            Request::Signalled { signal: 15, sender: 4711 },
            Request::Unfinished,
            Request::Collected { pid: 4711 },
            Request::Stand,
            Request::Keep { port: 8080 },
            Request::Leave,
        ] {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(
            request in prop::array::uniform32(any::<u8>()),
            reply in prop::array::uniform32(any::<u8>()),
        ) {
            let mut whole = [0; REQUEST_LEN];
            whole[..32].copy_from_slice(&request);
            if let Ok(decoded) = Request::decode(&whole) {
                prop_assert_eq!(Request::decode(&decoded.encode()), Ok(decoded));
            }
            if let Ok(decoded) = Reply::decode(&reply) {
                prop_assert_eq!(Reply::decode(&decoded.encode()), Ok(decoded));
            }
        }
    }
}

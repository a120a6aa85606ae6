//! The ends of emulated links: TUN devices in the routers' namespaces, or, for
//! users who may not have those, packet sockets on veth pairs.

mod socket;
mod tun;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};

use super::packet;
use socket::PacketSocket;
use tun::Tun;

/// The Ethernet address of a router's interface that a packet socket is at the
/// other end of, as ip(8) wants it.
pub(crate) fn router_mac() -> String {
    socket::MAC.map(|byte| format!("{byte:02x}")).join(":")
}

/// The device between the kernel and the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A TUN device: needs the right to open /dev/net/tun.
    Tun,
    /// A packet socket on one end of a veth pair: needs no right but over
    /// its network namespace.
    PacketSocket,
}

impl DeviceKind {
    /// The best that this process may use.
    pub(crate) fn available() -> Self {
        if tun::open().is_ok() { Self::Tun } else { Self::PacketSocket }
    }
}

/// Why a device can't be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The name is longer than the kernel allows.
    #[error("interface name {0:?} is longer than 15 bytes")]
    Name(String),
    /// The other namespace can't be entered.
    #[error("cannot enter the network namespace for interface {name:?}: {cause}")]
    Enter {
        /// The interface.
        name: String,
        /// The kernel's error.
        cause: nix::Error,
    },
    /// No TUN in this kernel, or not for this user.
    #[error("cannot open /dev/net/tun: {0}")]
    Open(io::Error),
    /// The kernel refused the device.
    #[error("cannot create the emulator's end of interface {name:?} ({step}): {cause}")]
    Create {
        /// The interface.
        name: String,
        /// The request that failed.
        step: &'static str,
        /// The kernel's error.
        cause: nix::Error,
    },
}

/// One end of an emulated link: what the namespace sends through the
/// interface is read here, what is written here arrives there.
#[derive(Debug)]
pub struct Device {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tun(Tun),
    Socket(PacketSocket),
}

impl Device {
    /// Creates a TUN interface `name` in a network namespace, which exists as
    /// long as this value. The calling thread is in that namespace afterwards.
    pub fn tun(namespace: BorrowedFd<'_>, name: &str) -> Result<Self, DeviceError> {
        Ok(Self { kind: Kind::Tun(Tun::create(namespace, name)?) })
    }

    /// Takes `name`, an interface in the calling thread's network namespace,
    /// whose peer is the one to carry packets for.
    pub(crate) fn packet_socket(name: &str) -> Result<Self, DeviceError> {
        Ok(Self { kind: Kind::Socket(PacketSocket::open(name)?) })
    }

    /// Reads one frame, a virtio-net header and an IP packet, into `buffer`,
    /// which must hold [`LARGEST_READ`] bytes; none if there is nothing to
    /// read.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match &self.kind {
            Kind::Tun(tun) => tun.receive(buffer),
            Kind::Socket(socket) => socket.receive(buffer),
        }
    }

    /// How many packets the kernel has dropped since the last call, because
    /// they weren't read in time.
    pub(crate) fn take_unread(&mut self) -> io::Result<u64> {
        match &mut self.kind {
            Kind::Tun(tun) => tun.take_unread(),
            Kind::Socket(socket) => socket.take_unread(),
        }
    }

    /// Hands one frame to the namespace.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        match &self.kind {
            Kind::Tun(tun) => tun.send(frame),
            Kind::Socket(socket) => socket.send(frame),
        }
    }
}

/// The most that [`Device::receive`] writes into its buffer.
pub(crate) const LARGEST_READ: usize = packet::LARGEST_FRAME + socket::ETHERNET;

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tun(tun) => tun.as_fd(),
            Kind::Socket(socket) => socket.as_fd(),
        }
    }
}

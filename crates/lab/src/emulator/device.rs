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

/// The Ethernet address of a router's interface whose other end is a packet socket, as ip(8) writes
/// it.
pub(crate) fn router_mac() -> String {
    socket::MAC.map(|byte| format!("{byte:02x}")).join(":")
}

/// The device between the kernel and the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A TUN device: needs the right to open /dev/net/tun.
    Tun,
    /// A packet socket on one end of a veth pair: needs no right but over the pair's network
    /// namespace.
    PacketSocket,
}

impl DeviceKind {
    /// The kind of device that this process uses: a TUN device if it may open its driver, else a
    /// packet socket.
    pub(crate) fn available() -> Self {
        if tun::open().is_ok() { Self::Tun } else { Self::PacketSocket }
    }
}

/// Why a device can't be made.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The interface's name is longer than the kernel allows.
    #[error("interface name {0:?} is longer than 15 bytes")]
    Name(String),
    /// The network namespace that the interface belongs to can't be entered.
    #[error("cannot enter the network namespace for interface {name:?}: {cause}")]
    Enter {
        /// Name of the interface.
        name: String,
        /// The kernel's error at entering the namespace.
        cause: nix::Error,
    },
    /// The kernel has no TUN driver, or this user may not open it.
    #[error("cannot open /dev/net/tun: {0}")]
    Open(io::Error),
    /// The kernel refused to make the device.
    #[error("cannot create the emulator's end of interface {name:?} ({step}): {cause}")]
    Create {
        /// Name of the interface.
        name: String,
        /// The request to the kernel that failed.
        step: &'static str,
        /// The kernel's error at the failed request.
        cause: nix::Error,
    },
}

/// One end of an emulated link. What the namespace sends through the interface is read from the
/// device. What is written to the device arrives in the namespace.
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
    /// Creates the TUN interface `name` in a network namespace. The interface exists as long as
    /// this value. The calling thread is in that namespace afterwards.
    pub fn tun(namespace: BorrowedFd<'_>, name: &str) -> Result<Self, DeviceError> {
        Ok(Self { kind: Kind::Tun(Tun::create(namespace, name)?) })
    }

    /// Takes the interface `name` of a veth pair in the calling thread's network namespace. The
    /// device carries the packets of its peer.
    pub(crate) fn packet_socket(name: &str) -> Result<Self, DeviceError> {
        Ok(Self { kind: Kind::Socket(PacketSocket::open(name)?) })
    }

    /// Reads one frame, a virtio-net header and an IP packet, into `buffer`, which must hold
    /// [`LARGEST_READ`] bytes. `None` if there is nothing to read, an empty slice if the frame is
    /// too short.
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

/// The most bytes that [`Device::receive`] writes into its buffer.
pub(crate) const LARGEST_READ: usize = packet::LARGEST_FRAME + socket::ETHERNET;

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tun(tun) => tun.as_fd(),
            Kind::Socket(socket) => socket.as_fd(),
        }
    }
}

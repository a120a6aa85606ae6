//! Waiting until wires carry packets: the kernel brings an interface into
//! operation a while after the command, and drops what is sent before.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::NetworkError;
use crate::interface;
use crate::topology::{Port, Topology};

/// How long interfaces may take until they are in operation.
pub(super) const WITHIN: Duration = Duration::from_secs(10);

/// Time between two looks at an interface.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until both ends of every wire are in operation. Visits the machines' networks, so the
/// caller must have one thread only.
pub(super) fn wait(topology: &Topology, namespaces: &[OwnedFd]) -> Result<(), NetworkError> {
    let sockets = sockets(namespaces).map_err(NetworkError::State)?;
    let deadline = Instant::now() + WITHIN;
    for port in topology.wires.iter().flatten() {
        while !is_running(&sockets[port.machine], port).map_err(NetworkError::State)? {
            if Instant::now() >= deadline {
                let place = topology.machines[port.machine].name.clone();
                return Err(NetworkError::Down { place, interface: port.interface.clone() });
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Makes a socket in every machine's network.
fn sockets(namespaces: &[OwnedFd]) -> nix::Result<Vec<OwnedFd>> {
    let own = File::open("/proc/thread-self/ns/net")
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let made = namespaces
        .iter()
        .map(|namespace| {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
            socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        })
        .collect();
    setns(own.as_fd(), CloneFlags::CLONE_NEWNET)?;
    made
}

/// Whether an interface is in operation (netdevice(7), IFF_RUNNING).
fn is_running(socket: &OwnedFd, port: &Port) -> nix::Result<bool> {
    let mut request = interface::request(&port.interface).ok_or(Errno::EINVAL)?;
    // SAFETY: the kernel reads and writes the one ifreq it is given, whose
    // name ends with a zero.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request) };
    Errno::result(done)?;
    // SAFETY: SIOCGIFFLAGS has filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(i32::from(flags) & libc::IFF_RUNNING != 0)
}

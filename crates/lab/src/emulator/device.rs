//! A TUN device with segmentation offload in a node's network namespace.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sched::{CloneFlags, setns};

use super::packet;

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
        /// What the kernel said.
        cause: nix::Error,
    },
    /// No TUN in this kernel, or not for this user.
    #[error(
        "cannot open /dev/net/tun: {0}; links with delay or rate need the kernel's TUN driver and the right to use it"
    )]
    Open(io::Error),
    /// The kernel refused the device.
    #[error("cannot create TUN interface {name:?} ({step}): {cause}")]
    Create {
        /// The interface.
        name: String,
        /// The request that failed.
        step: &'static str,
        /// What the kernel said.
        cause: nix::Error,
    },
}

/// One end of an emulated link: what the namespace sends through the
/// interface is read here, what is written here arrives there. The interface
/// exists as long as this value.
#[derive(Debug)]
pub struct Device {
    file: File,
}

// linux/if_tun.h
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
/// TUN_F_CSUM, TUN_F_TSO4 and TUN_F_TSO6.
const OFFLOADS: libc::c_int = 0x01 | 0x02 | 0x04;

nix::ioctl_write_ptr_bad!(
    tun_set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);
nix::ioctl_write_int_bad!(tun_set_offload, nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>()));

impl Device {
    /// Creates the interface `name` in a network namespace. The calling
    /// thread is in that namespace afterwards.
    pub fn create(namespace: BorrowedFd<'_>, name: &str) -> Result<Self, DeviceError> {
        let mut request = interface_request(name)?;
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|cause| DeviceError::Enter { name: name.to_owned(), cause })?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(DeviceError::Open)?;
        let failed = |step| move |cause| DeviceError::Create { name: name.to_owned(), step, cause };
        // SAFETY: the file is an open TUN descriptor, and `request` a valid
        // ifreq that the kernel only reads and writes during the call.
        unsafe { tun_set_interface(file.as_raw_fd(), &request) }.map_err(failed("TUNSETIFF"))?;
        // SAFETY: the argument is a plain number.
        unsafe { tun_set_offload(file.as_raw_fd(), OFFLOADS) }.map_err(failed("TUNSETOFFLOAD"))?;
        Ok(Self { file })
    }

    /// Reads one frame into `buffer`, which must hold
    /// [`packet::LARGEST_FRAME`] bytes; none if there is nothing to read.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        debug_assert!(buffer.len() >= packet::LARGEST_FRAME);
        match io::Read::read(&mut &self.file, buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands one frame to the namespace.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, frame).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Device> for OwnedFd {
    fn from(device: Device) -> Self {
        device.file.into()
    }
}

fn interface_request(name: &str) -> Result<libc::ifreq, DeviceError> {
    // SAFETY: ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(DeviceError::Name(name.to_owned()));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

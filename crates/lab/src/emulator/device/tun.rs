//! A TUN device with segmentation offload in a machine's network namespace.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sched::{CloneFlags, setns};

use super::DeviceError;

/// A TUN device; its interface exists as long as this value.
#[derive(Debug)]
pub struct Tun {
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

impl Tun {
    /// See [`super::Device::tun`].
    pub fn create(namespace: BorrowedFd<'_>, name: &str) -> Result<Self, DeviceError> {
        let mut request = interface_request(name)?;
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|cause| DeviceError::Enter { name: name.to_owned(), cause })?;
        let file = open().map_err(DeviceError::Open)?;
        let failed = |step| move |cause| DeviceError::Create { name: name.to_owned(), step, cause };
        // SAFETY: the file is an open TUN descriptor, and `request` a valid
        // ifreq that the kernel only reads and writes during the call.
        unsafe { tun_set_interface(file.as_raw_fd(), &request) }.map_err(failed("TUNSETIFF"))?;
        // SAFETY: the argument is a plain number.
        unsafe { tun_set_offload(file.as_raw_fd(), OFFLOADS) }.map_err(failed("TUNSETOFFLOAD"))?;
        Ok(Self { file })
    }

    /// See [`super::Device::receive`].
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match io::Read::read(&mut &self.file, buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// See [`super::Device::send`].
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, frame).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The kernel's TUN driver, if this process may use it.
pub fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")
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

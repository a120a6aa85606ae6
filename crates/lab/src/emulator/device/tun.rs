//! A TUN device with segmentation offload in a machine's network namespace.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sched::{CloneFlags, setns};

use super::DeviceError;
use crate::interface;

/// A TUN device, whose interface exists as long as this value.
#[derive(Debug)]
pub(super) struct Tun {
    file: File,
    name: String,
    /// The open file /proc/net/dev of the device's namespace.
    counters: File,
    dropped: u64,
}

// linux/if_tun.h
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
/// The offloads that the device uses: TUN_F_CSUM, TUN_F_TSO4 and TUN_F_TSO6.
const OFFLOADS: libc::c_int = 0x01 | 0x02 | 0x04;

nix::ioctl_write_ptr_bad!(
    tun_set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);
nix::ioctl_write_int_bad!(tun_set_offload, nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>()));

impl Tun {
    /// Creates the interface, as [`super::Device::tun`] describes.
    pub(super) fn create(namespace: BorrowedFd<'_>, name: &str) -> Result<Self, DeviceError> {
        let mut request = interface::request(name).ok_or_else(|| DeviceError::Name(name.to_owned()))?;
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
        // Whichever namespace this process is in later, the file stays that of the present
        // namespace.
        let counters = File::open("/proc/thread-self/net/dev").map_err(|error| {
            failed("/proc/net/dev")(error.raw_os_error().map_or(nix::Error::EIO, nix::Error::from_raw))
        })?;
        Ok(Self { file, name: name.to_owned(), counters, dropped: 0 })
    }

    /// How many packets the kernel dropped, as [`super::Device::take_unread`] describes.
    pub(crate) fn take_unread(&mut self) -> io::Result<u64> {
        self.counters.rewind()?;
        let text = io::read_to_string(&self.counters)?;
        let dropped = transmit_drops(&text, &self.name).unwrap_or(self.dropped);
        let unread = dropped.saturating_sub(self.dropped);
        self.dropped = dropped;
        Ok(unread)
    }

    /// Reads one frame, as [`super::Device::receive`] describes.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match io::Read::read(&mut &self.file, buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends one frame, as [`super::Device::send`] describes.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, frame).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the kernel's TUN driver, if this process may use it.
pub(super) fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")
}

/// How many packets an interface's transmit queue had no room for, from the text of /proc/net/dev
/// (proc(5)). `None` if the text doesn't name the interface.
fn transmit_drops(text: &str, name: &str) -> Option<u64> {
    const RECEIVE_COLUMNS: usize = 8;
    const DROP: usize = 3;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(RECEIVE_COLUMNS + DROP)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_right_column() {
        let text = "Inter-|   Receive                       |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16
   wan: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
  wan2: 0 0 0 0 0 0 0 0 0 0 0 7 0 0 0 0
";
        for (name, drops) in [("lo", Some(12)), ("wan", Some(32)), ("wan2", Some(7)), ("an", None)] {
            assert_eq!(transmit_drops(text, name), drops, "{name}");
        }
    }
}

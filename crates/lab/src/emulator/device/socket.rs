//! A packet socket on one end of a veth pair, whose other end is a router's
//! interface.
//!
//! On the wire between them are Ethernet frames, though both ends only speak
//! IP: the router's interface has ARP switched off and sends to its own
//! address ([`MAC`]), which the emulator's end hasn't, so that the kernel
//! there looks at no packet after the socket has got it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::DeviceError;
use crate::emulator::packet;
use crate::packet_socket;

/// The Ethernet address of the router's end of every veth pair that carries an emulated link. Each
/// pair is a network of its own, so pairs may share it.
pub(crate) const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// Length of an Ethernet header in bytes.
pub(super) const ETHERNET: usize = 14;

// linux/if_packet.h, linux/if_ether.h
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

#[derive(Debug)]
pub(super) struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Opens a packet socket that takes what arrives at an interface of the caller's network
    /// namespace.
    pub(super) fn open(name: &str) -> Result<Self, DeviceError> {
        let failed = |step| move |cause| DeviceError::Create { name: name.to_owned(), step, cause };
        let index = nix::net::if_::if_nametoindex(name).map_err(failed("finding it"))?;
        let socket = packet_socket::create().map_err(failed("packet socket"))?;
        switch_on(&socket, libc::PACKET_VNET_HDR).map_err(failed("PACKET_VNET_HDR"))?;
        switch_on(&socket, PACKET_IGNORE_OUTGOING).map_err(failed("PACKET_IGNORE_OUTGOING"))?;
        packet_socket::make_room(&socket).map_err(failed("SO_RCVBUF"))?;
        packet_socket::bind(&socket, index).map_err(failed("bind"))?;
        Ok(Self { socket })
    }

    /// Reads one frame, as [`super::Device::receive`] describes.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        let length = match nix::unistd::read(&self.socket, buffer) {
            Ok(length) => length,
            Err(nix::Error::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The virtio-net header moves over the Ethernet header.
        match buffer.get_mut(..length).filter(|frame| frame.len() >= packet::HEADER + ETHERNET) {
            Some(frame) => {
                frame.copy_within(..packet::HEADER, ETHERNET);
                let frame = &mut frame[ETHERNET..];
                packet::shift_offsets(frame, -(ETHERNET as i16));
                Ok(Some(frame))
            }
            None => Ok(Some(&[])),
        }
    }

    /// How many packets the kernel dropped, as [`super::Device::take_unread`] describes.
    pub(crate) fn take_unread(&self) -> io::Result<u64> {
        Ok(packet_socket::take_dropped(&self.socket)?)
    }

    /// Sends one frame, as [`super::Device::send`] describes.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let Some((header, packet)) = frame.split_at_checked(packet::HEADER) else { return Ok(()) };
        let mut start = [0; packet::HEADER + ETHERNET];
        start[..packet::HEADER].copy_from_slice(header);
        packet::shift_offsets(&mut start, ETHERNET as i16);
        let ethernet = &mut start[packet::HEADER..];
        ethernet[..6].copy_from_slice(&MAC);
        ethernet[6..12].copy_from_slice(&MAC);
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        ethernet[12..].copy_from_slice(if v6 { &ETHERTYPE_IPV6 } else { &ETHERTYPE_IPV4 });
        let parts = [IoSlice::new(&start), IoSlice::new(packet)];
        nix::sys::uio::writev(&self.socket, &parts)?;
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Switches an option of a packet socket on.
fn switch_on(socket: &OwnedFd, option: libc::c_int) -> nix::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is a live integer of the length given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    nix::Error::result(result).map(drop)
}

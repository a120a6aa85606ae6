//! A packet socket on one end of a veth pair, whose other end is a router's
//! interface.
//!
//! On the wire between them are Ethernet frames, though both ends only speak
//! IP: the router's interface has ARP switched off and sends to its own
//! address ([`MAC`]), which the emulator's end hasn't, so that the kernel
//! there looks at no packet after the socket has got it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::DeviceError;
use crate::emulator::packet;

/// The address of every router's end of such a pair; each pair is a network of
/// its own.
pub const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// Length of an Ethernet header.
pub const ETHERNET: usize = 14;

/// Room for what a busy sender produces while the emulator has no processor;
/// where the kernel grants it.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;

// linux/if_packet.h, linux/if_ether.h
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Takes what arrives at an interface of the caller's network namespace.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        let failed = |step| move |cause| DeviceError::Create { name: name.to_owned(), step, cause };
        let index = nix::net::if_::if_nametoindex(name).map_err(failed("finding it"))?;
        // Without a protocol it gets nothing until it is bound to its interface.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes numbers only.
        let raw = nix::Error::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
            .map_err(failed("packet socket"))?;
        // SAFETY: the kernel just made this descriptor, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let set = |level, option, value: libc::c_int| {
            // SAFETY: the value is a live integer of the length given.
            nix::Error::result(unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    option,
                    (&raw const value).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            })
        };
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map_err(failed("PACKET_VNET_HDR"))?;
        set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1).map_err(failed("PACKET_IGNORE_OUTGOING"))?;
        if set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).is_err() {
            set(libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER).map_err(failed("SO_RCVBUF"))?;
        }
        // SAFETY: sockaddr_ll is plain data, for which all zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: the address is a live sockaddr_ll of the length given.
        nix::Error::result(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })
        .map_err(failed("bind"))?;
        Ok(Self { socket })
    }

    /// See [`super::Device::receive`].
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
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

    /// See [`super::Device::take_unread`].
    pub fn take_unread(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is plain data, for which all zeros are valid.
        let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to a live structure
        // of that length.
        nix::Error::result(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        })?;
        // Reading them sets them to zero.
        Ok(statistics.tp_drops.into())
    }

    /// See [`super::Device::send`].
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
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

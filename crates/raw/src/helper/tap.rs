//! Captures outgoing SYNs, by a packet socket (packet(7)) with a filter.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use isthmus_raw::syn;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

/// Most bytes that are captured of a packet, more than its headers have.
const LONGEST: usize = 2 * syn::MAX_LEN;

pub(super) struct Tap(OwnedFd);

impl Tap {
    /// Starts to capture outgoing SYNs on all interfaces.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // The socket receives nothing before it is bound, and has its filter by then.
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, None::<SockProtocol>)?;
        attach(&socket)?;
        bind(&socket)?;
        Ok(Self(socket))
    }

    /// The next captured packet, from its IP header on; `None` if there is none yet.
    pub(super) fn next(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; LONGEST];
        loop {
            match recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(length) => {
                    packet.truncate(length);
                    return Some(packet);
                }
                Err(Errno::EINTR) => {}
                // No more packets, or an interface went down.
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The filter of the packet socket (BPF, as in tcpdump -d). It takes outgoing IPv4 packets without
/// options that are TCP and no fragments. Of FIN, SYN, RST and ACK they have only SYN.
fn filter() -> [libc::sock_filter; 16] {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD};
    use libc::{BPF_LDX, BPF_MSH, BPF_RET};
    let ancillary = |what: i32| (libc::SKF_AD_OFF + what) as u32;
    let load = |size: u32, k: u32| instruction(BPF_LD | size | BPF_ABS, 0, 0, k);
    // Goes on if equal, else skips `other` instructions, to the end.
    let equal = |k: u32, other: u8| instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, other, k);
    [
        load(BPF_B, ancillary(libc::SKF_AD_PKTTYPE)),
        equal(libc::PACKET_OUTGOING.into(), 13),
        load(BPF_H, ancillary(libc::SKF_AD_PROTOCOL)),
        equal(libc::ETH_P_IP as u32, 11),
        load(BPF_B, 9),
        equal(libc::IPPROTO_TCP as u32, 9),
        load(BPF_H, 6),
        instruction(BPF_JMP | BPF_JSET | BPF_K, 7, 0, 0x3fff),
        instruction(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
        instruction(BPF_LD | BPF_B | BPF_IND, 0, 0, 13),
        instruction(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0x17),
        equal(0x02, 3),
        load(BPF_B, 0),
        equal(0x45, 1),
        instruction(BPF_RET | BPF_K, 0, 0, LONGEST as u32),
        instruction(BPF_RET | BPF_K, 0, 0, 0),
    ]
}

fn instruction(code: u32, if_true: u8, if_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: if_true, jf: if_false, k }
}

fn attach(socket: &OwnedFd) -> nix::Result<()> {
    let mut filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: program and filter are initialised and live until the call returns,
    // which copies them.
    Errno::result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn bind(socket: &OwnedFd) -> nix::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is initialised and lives until the call returns.
    Errno::result(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

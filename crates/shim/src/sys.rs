//! System calls as the shim makes them for itself.
//!
//! They are raw, so that they pass the shim's own hooks by and none is a cancellation point. A
//! cancelled thread never unwinds through a frame that owns something.

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::errno::check;
pub(crate) use crate::errno::{Errno, Fd, Result, errno, plain, set_errno};
use crate::limit;
use crate::raw;
use crate::sockaddr::Storage;

/// A descriptor of the shim's own, which is closed on drop.
#[derive(Debug)]
pub(crate) struct OwnedFd(Fd);

impl OwnedFd {
    /// Takes ownership of an open descriptor.
    pub(crate) fn from_raw(fd: Fd) -> Self {
        Self(fd)
    }

    pub(crate) fn raw(&self) -> Fd {
        self.0
    }

    /// Gives the descriptor to the program, which has to close it.
    pub(crate) fn into_raw(self) -> Fd {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }

    /// Moves the descriptor out of the low numbers, which programs expect to be given in order. It
    /// stays if there is no room below the limit.
    ///
    /// The new number is below the table's first growth if there is room. Growing the table stalls
    /// a threaded process by 10-20 ms.
    pub(crate) fn raised(self) -> Self {
        Self::away(self.0).unwrap_or(self)
    }

    /// Another descriptor of the same file, out of the low numbers if there is room.
    pub(crate) fn copy_of(fd: Fd) -> Result<Self> {
        let anywhere = || fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
        Self::away(fd).or_else(|_| limit::or_beyond(anywhere).map(Self))
    }

    fn away(fd: Fd) -> Result<Self> {
        const AWAY: c_long = 40;
        fcntl(fd, libc::F_DUPFD_CLOEXEC, AWAY).map(Self)
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        // Nothing can be done about an error of close.
        let _ = close(self.0);
    }
}

/// Makes the system call close(2).
pub(crate) fn close(fd: Fd) -> Result<c_int> {
    // SAFETY: no pointer is passed.
    check(unsafe { raw::call!(libc::SYS_close, fd) })
}

/// Whether closing a socket may wait until its data is sent (`SO_LINGER`).
pub(crate) fn lingers(fd: Fd) -> bool {
    // Whether it does, and for how many seconds: 4 bytes each.
    let mut bytes = [0; size_of::<libc::linger>()];
    let known = get_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &mut bytes) == Ok(bytes.len());
    known && bytes[..4] != [0; 4] && bytes[4..] != [0; 4]
}

/// Makes the system call close_range(2).
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Result<c_int> {
    // SAFETY: no pointer is passed.
    check(unsafe { raw::call!(libc::SYS_close_range, first, last, flags) })
}

/// Makes the system call socket(2), close-on-exec.
pub(crate) fn socket(domain: c_int, kind: c_int) -> Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let new = || check(unsafe { raw::call!(libc::SYS_socket, domain, kind | libc::SOCK_CLOEXEC, 0) });
    limit::or_beyond(new).map(OwnedFd)
}

/// Makes the system call connect(2).
pub(crate) fn connect(fd: Fd, address: &Storage) -> Result<c_int> {
    // SAFETY: `address` is readable for its length.
    check(unsafe { raw::call!(libc::SYS_connect, fd, address.as_ptr(), address.len()) })
}

/// Makes the system call connect(2), which waits for a tick of the kernel's clock at most. A thread
/// of the program may have the socket wait (`O_NONBLOCK`) at any moment.
pub(crate) fn connect_at_once(fd: Fd, address: &Storage) -> Result<c_int> {
    const LEN: usize = size_of::<libc::timeval>();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO);
    let mut tick = [0; LEN];
    // The kernel rounds a microsecond up.
    tick[LEN / 2..].copy_from_slice(&1_u64.to_ne_bytes());
    let (mut before, mut after) = ([0; LEN], [0; LEN]);
    get_option(fd, level, name, &mut before)?;
    set_option(fd, level, name, &tick)?;
    get_option(fd, level, name, &mut tick)?;
    let result = connect(fd, address);
    // The program may have set another time meanwhile.
    if get_option(fd, level, name, &mut after).is_ok() && after == tick {
        let _ = set_option(fd, level, name, &before);
    }
    result
}

/// Makes the system call bind(2).
pub(crate) fn bind(fd: Fd, address: &Storage) -> Result<c_int> {
    // SAFETY: `address` is readable for its length.
    check(unsafe { raw::call!(libc::SYS_bind, fd, address.as_ptr(), address.len()) })
}

/// The address of a socket's own end, by getsockname(2).
pub(crate) fn local_name(fd: Fd) -> Result<Storage> {
    let mut name = Storage::new();
    // SAFETY: `name` is writable for the length it states.
    check(unsafe { raw::call!(libc::SYS_getsockname, fd, name.as_mut_ptr(), name.len_mut()) })?;
    Ok(name)
}

/// The address of a socket's other end, by getpeername(2).
pub(crate) fn peer_name(fd: Fd) -> Result<Storage> {
    let mut name = Storage::new();
    // SAFETY: `name` is writable for the length it states.
    check(unsafe { raw::call!(libc::SYS_getpeername, fd, name.as_mut_ptr(), name.len_mut()) })?;
    Ok(name)
}

/// Makes the system call getsockopt(2). Returns the length that was written.
pub(crate) fn get_option(fd: Fd, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: `value` is writable for `len` bytes.
    check(unsafe { raw::call!(libc::SYS_getsockopt, fd, level, name, value.as_mut_ptr(), &raw mut len) })?;
    Ok((len as usize).min(value.len()))
}

/// Makes the system call getsockopt(2) for an option that is an `int`.
pub(crate) fn get_int(fd: Fd, level: c_int, name: c_int) -> Result<c_int> {
    let mut bytes = [0; size_of::<c_int>()];
    get_option(fd, level, name, &mut bytes)?;
    Ok(c_int::from_ne_bytes(bytes))
}

/// Makes the system call setsockopt(2).
pub(crate) fn set_option(fd: Fd, level: c_int, name: c_int, value: &[u8]) -> Result<c_int> {
    // SAFETY: `value` is readable for its length.
    check(unsafe { raw::call!(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) })
}

/// Makes the system call setsockopt(2) as a program calls it.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn set_option_raw(
    fd: Fd,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> Result<c_int> {
    // SAFETY: the caller's promise.
    check(unsafe { raw::call!(libc::SYS_setsockopt, fd, level, name, value, len) })
}

/// Makes the system call setsockopt(2) for an option that is an `int`.
pub(crate) fn set_int(fd: Fd, level: c_int, name: c_int, value: c_int) -> Result<c_int> {
    set_option(fd, level, name, &value.to_ne_bytes())
}

/// The cookie of a socket (`SO_COOKIE`): a number that no other socket of this machine has or will
/// have. 0 if `fd` is no socket.
pub(crate) fn cookie(fd: Fd) -> u64 {
    let mut bytes = [0; 8];
    match get_option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut bytes) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

/// The state of a TCP socket as in `tcpi_state` (1 established, 2 SYN_SENT,
/// 7 closed, 10 listening).
pub(crate) fn tcp_state(fd: Fd) -> Result<u8> {
    let mut state = [0; 1];
    get_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(state[0])
}

/// `tcpi_state` of a socket whose connect is under way.
pub(crate) const SYN_SENT: u8 = 2;
/// `tcpi_state` of a socket that is neither connected nor listening.
pub(crate) const CLOSED: u8 = 7;

/// Makes the system call fcntl(2) with an integer argument.
pub(crate) fn fcntl(fd: Fd, command: c_int, argument: c_long) -> Result<c_int> {
    // SAFETY: no command used here takes a pointer.
    check(unsafe { raw::call!(libc::SYS_fcntl, fd, command, argument) })
}

/// Makes the system call ioctl(2) as a program calls it.
///
/// # Safety
/// As ioctl(2).
pub(crate) unsafe fn ioctl_raw(fd: Fd, request: libc::c_ulong, argument: *mut c_void) -> Result<c_int> {
    // SAFETY: the caller's promise.
    check(unsafe { raw::call!(libc::SYS_ioctl, fd, request, argument) })
}

/// Makes the system call dup(2).
pub(crate) fn dup(fd: Fd) -> Result<c_int> {
    // SAFETY: no pointer is passed.
    check(unsafe { raw::call!(libc::SYS_dup, fd) })
}

/// Does what dup2(2) does, a system call that not every architecture has.
pub(crate) fn dup2(from: Fd, to: Fd) -> Result<c_int> {
    if from == to { fcntl(from, libc::F_GETFD, 0).map(|_| to) } else { dup3(from, to, 0) }
}

/// Makes the system call dup3(2).
pub(crate) fn dup3(from: Fd, to: Fd, flags: c_int) -> Result<c_int> {
    // SAFETY: no pointer is passed.
    check(unsafe { raw::call!(libc::SYS_dup3, from, to, flags) })
}

/// Makes an open number stand for another file, by dup3(2). The number may lie above the limit.
pub(crate) fn replace(from: Fd, open: Fd, flags: c_int) -> Result<c_int> {
    limit::or_above(open, || dup3(from, open, flags))
}

/// The open file that a descriptor stands for, and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The type bits of the file's mode (`S_IFMT`).
    pub(crate) kind: u32,
}

fn stat(fd: Fd) -> Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `stat` is writable and of the type the kernel writes.
    check(unsafe { raw::call!(libc::SYS_fstat, fd, stat.as_mut_ptr()) })?;
    // SAFETY: zeroed before, and all-zero is a valid `stat`.
    Ok(unsafe { stat.assume_init() })
}

/// Whether an open file belongs to this process's effective user or to root, and no
/// other user may write to it.
pub(crate) fn is_private(fd: Fd) -> bool {
    stat(fd).is_ok_and(|stat| is_trusted(stat.st_uid) && stat.st_mode & 0o022 == 0)
}

/// Whether the process at the other end of a Unix socket runs as this process's
/// effective user or as root.
pub(crate) fn peer_is_trusted(fd: Fd) -> bool {
    // pid, uid, gid: 4 bytes each.
    let mut bytes = [0; size_of::<libc::ucred>()];
    get_option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut bytes).is_ok_and(|len| len == bytes.len())
        && bytes[4..8].try_into().is_ok_and(|user| is_trusted(libc::uid_t::from_ne_bytes(user)))
}

fn is_trusted(user: libc::uid_t) -> bool {
    user == 0 || user == effective_user()
}

/// The identity of the open file that a descriptor stands for, by fstat(2).
pub(crate) fn identity(fd: Fd) -> Result<Identity> {
    let stat = stat(fd)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino, kind: stat.st_mode & libc::S_IFMT })
}

/// Makes the system call epoll_ctl(2).
pub(crate) fn epoll_ctl(epoll: Fd, operation: c_int, fd: Fd, mut event: libc::epoll_event) -> Result<c_int> {
    // SAFETY: `event` is a valid epoll_event.
    check(unsafe { raw::call!(libc::SYS_epoll_ctl, epoll, operation, fd, &raw mut event) })
}

/// Makes the system call epoll_create1(2), close-on-exec.
pub(crate) fn epoll_create() -> Result<OwnedFd> {
    // SAFETY: takes no pointer.
    limit::or_beyond(|| check(unsafe { raw::call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }))
        .map(OwnedFd)
}

/// Waits as epoll_wait(2), to the millisecond, rounded up. Without a timeout it waits without end.
pub(crate) fn epoll_wait(
    epoll: Fd,
    events: &mut [libc::epoll_event],
    timeout: Option<std::time::Duration>,
) -> Result<c_int> {
    let timeout = timeout
        .map_or(-1, |timeout| c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX));
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let no_mask = std::ptr::null::<c_void>();
    // SAFETY: `events` is writable for as many as are asked for; no signal mask.
    check(unsafe {
        raw::call!(
            libc::SYS_epoll_pwait,
            epoll,
            events.as_mut_ptr(),
            room,
            timeout,
            no_mask,
            size_of::<u64>(),
        )
    })
}

/// Makes the system call epoll_ctl(2) as a program calls it.
///
/// # Safety
/// As epoll_ctl(2).
pub(crate) unsafe fn epoll_ctl_raw(
    epoll: Fd,
    operation: c_int,
    fd: Fd,
    event: *mut libc::epoll_event,
) -> Result<c_int> {
    // SAFETY: the caller's promise.
    check(unsafe { raw::call!(libc::SYS_epoll_ctl, epoll, operation, fd, event) })
}

/// Waits as poll(2). Without a timeout it waits without end.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<std::time::Duration>) -> Result<c_int> {
    let timespec = timeout.map(timespec);
    let pointer = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` and the timespec live through the call; no signal mask.
    check(unsafe {
        raw::call!(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            pointer,
            std::ptr::null::<c_void>(),
            size_of::<u64>(),
        )
    })
}

/// A pair of Unix sockets that don't block, by socketpair(2).
pub(crate) fn socket_pair(kind: c_int) -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [Fd; 2] = [-1; 2];
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    limit::or_beyond(|| {
        // SAFETY: `fds` has room for two descriptors.
        check(unsafe { raw::call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })
    })?;
    Ok((OwnedFd(fds[0]), OwnedFd(fds[1])))
}

/// Whether a system call that opens a file or reads a link would end this process.
static IS_WITHOUT_FILES: AtomicBool = AtomicBool::new(false);

/// Has all further calls that open files and read links fail by themselves.
pub(crate) fn do_without_files() {
    IS_WITHOUT_FILES.store(true, Ordering::Relaxed);
}

fn has_files() -> Result<()> {
    if IS_WITHOUT_FILES.load(Ordering::Relaxed) { Err(Errno(libc::EPERM)) } else { Ok(()) }
}

/// Opens a file for reading, by its absolute path.
pub(crate) fn open(path: &CStr) -> Result<OwnedFd> {
    open_with(path, libc::O_RDONLY)
}

/// Opens a file with these flags, close-on-exec.
pub(crate) fn open_with(path: &CStr, flags: c_int) -> Result<OwnedFd> {
    has_files()?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string.
    let new = || check(unsafe { raw::call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) });
    limit::or_beyond(new).map(OwnedFd)
}

/// Reads as read(2), again after a signal.
pub(crate) fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: `buffer` is writable for its length.
        let read = check(unsafe { raw::call!(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) });
        match read {
            Err(Errno(libc::EINTR)) => {}
            other => return other.map(|read| usize::try_from(read).unwrap_or(0)),
        }
    }
}

/// Reads a file from its beginning, by pread(2).
pub(crate) fn read_at_start(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    let read = check(unsafe { raw::call!(libc::SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), 0) });
    read.map(|read| usize::try_from(read).unwrap_or(0))
}

/// Makes an empty file in memory, by memfd_create(2).
pub(crate) fn memory_file(name: &CStr, flags: c_uint) -> Result<OwnedFd> {
    // SAFETY: `name` is a C string.
    let new = || check(unsafe { raw::call!(libc::SYS_memfd_create, name.as_ptr(), flags) });
    limit::or_beyond(new).map(OwnedFd)
}

/// Writes the whole of `bytes` at an offset of a file, by pwrite(2).
///
/// # Errors
/// As pwrite(2), and `ENOSPC` if not all was written.
pub(crate) fn write_at(fd: Fd, bytes: &[u8], offset: usize) -> Result<()> {
    // SAFETY: `bytes` is readable for its length.
    let written = check(unsafe { raw::call!(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset) })?;
    if usize::try_from(written) == Ok(bytes.len()) { Ok(()) } else { Err(Errno(libc::ENOSPC)) }
}

/// Whether a file may give further rights to the user that executes it: setuid, setgid,
/// capabilities.
pub(crate) fn is_privileged(fd: Fd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `status` is writable.
    let known = unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0;
    // SAFETY: zeroed before, and all-zero is a valid `stat`.
    let mode = unsafe { status.assume_init() }.st_mode;
    if known && mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return true;
    }
    let name = c"security.capability".as_ptr();
    let nothing = std::ptr::null_mut::<c_void>();
    // SAFETY: the name is a C string; without room the value is only measured.
    check(unsafe { raw::call!(libc::SYS_fgetxattr, fd, name, nothing, 0) }).is_ok()
}

/// Whether this process may execute a file.
pub(crate) fn may_execute(path: &CStr) -> bool {
    // SAFETY: `path` is a C string.
    let allowed = unsafe { raw::call!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK) };
    check(allowed).is_ok()
}

/// Memory from mmap(2), for where malloc(3) may not be called. It is given back on drop.
#[derive(Debug)]
pub(crate) struct Pages {
    start: *mut c_void,
    len: usize,
}

impl Pages {
    /// Maps at least `len` bytes; zero bytes need no mapping.
    ///
    /// # Errors
    /// As mmap(2).
    pub(crate) fn new(len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self { start: std::ptr::null_mut(), len });
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever the kernel finds room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(Self { start, len }) }
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.start
    }
}

// SAFETY: memory that whoever has it may use from any thread.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped above, and the last user is dropped here.
            unsafe { libc::munmap(self.start, self.len) };
        }
    }
}

/// Reads a link by its absolute path, cut to the buffer.
pub(crate) fn readlink<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    has_files()?;
    // SAFETY: `path` is a C string and `buffer` writable for its length.
    let len = check(unsafe {
        raw::call!(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len())
    })?;
    Ok(buffer.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default())
}

/// Sends as send(2), without SIGPIPE and again after a signal.
pub(crate) fn send(fd: Fd, bytes: &[u8]) -> Result<usize> {
    loop {
        // SAFETY: `bytes` is readable for its length; no address is passed.
        let sent = check(unsafe {
            raw::call!(
                libc::SYS_sendto,
                fd,
                bytes.as_ptr(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                std::ptr::null::<c_void>(),
                0,
            )
        });
        match sent {
            Err(Errno(libc::EINTR)) => {}
            other => return other.map(|sent| usize::try_from(sent).unwrap_or(0)),
        }
    }
}

/// Asks the kernel about sockets (sock_diag(7)). Returns the length of its answer, which is cut to
/// the buffer.
pub(crate) fn sock_diag(request: &[u8], reply: &mut [u8]) -> Result<usize> {
    let (family, kind) = (libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC);
    // SAFETY: no pointer is passed.
    let new = || check(unsafe { raw::call!(libc::SYS_socket, family, kind, libc::NETLINK_SOCK_DIAG) });
    let netlink = limit::or_beyond(new).map(OwnedFd)?;
    send(netlink.raw(), request)?;
    let mut from = Storage::new();
    // The kernel has answered by now, and it alone may send to this socket.
    // SAFETY: `reply` and `from` are writable for their lengths.
    let received = check(unsafe {
        raw::call!(
            libc::SYS_recvfrom,
            netlink.raw(),
            reply.as_mut_ptr(),
            reply.len(),
            libc::MSG_DONTWAIT,
            from.as_mut_ptr(),
            from.len_mut(),
        )
    })?;
    const SENDER: std::ops::Range<usize> = 4..8;
    match from.bytes().get(SENDER) {
        Some([0, 0, 0, 0]) => Ok(usize::try_from(received).unwrap_or(0)),
        Some(_) | None => Err(Errno(libc::EAGAIN)),
    }
}

/// Waits for a [`futex_wake`] of this process, while `word` has the value `seen`. As futex(2),
/// `FUTEX_WAIT`.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, timeout: std::time::Duration) -> Result<c_int> {
    let timeout = timespec(timeout);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` and `timeout` are readable through the call.
    check(unsafe { raw::call!(libc::SYS_futex, word.as_ptr(), operation, seen, &raw const timeout) })
}

/// Wakes all threads of this process that wait for `word`. As futex(2), `FUTEX_WAKE`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: only the address is used.
    unsafe {
        raw::call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, c_int::MAX)
    };
}

/// A duration in the form that the kernel takes.
pub(crate) fn timespec(duration: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// The effective user of this process, by geteuid(2).
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing and never fails.
    unsafe { libc::geteuid() }
}

/// Maps a file of at least `len` bytes, which several processes read and write. It stays mapped
/// until this process ends.
pub(crate) fn map_shared(path: &CStr, len: usize) -> Result<*mut c_void> {
    let file = open_with(path, libc::O_RDWR)?;
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `stat` is writable and of the type the kernel writes.
    check(unsafe { raw::call!(libc::SYS_fstat, file.raw(), stat.as_mut_ptr()) })?;
    // SAFETY: zeroed before, and all-zero is a valid `stat`.
    let size = unsafe { stat.assume_init() }.st_size;
    // Beyond the end of the file an access would end the process.
    if usize::try_from(size).unwrap_or(0) < len {
        return Err(Errno(libc::EINVAL));
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, wherever the kernel finds room.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.raw(), 0) };
    if start == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(start) }
}

/// An aligned buffer for a control message with one descriptor.
#[repr(align(8))]
struct Control([u8; 32]);

/// A msghdr for one buffer and one control message. It holds pointers to `part`, to `control` and
/// to what they lead to.
fn message_header(part: &mut libc::iovec, control: &mut Control, control_len: usize) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control_len as _;
    message
}

/// Receives a whole message with at most one descriptor, by recvmsg(2).
pub(crate) fn receive(fd: Fd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    // The kernel drops a descriptor for which it finds no number, and another thread may take the
    // last number at any moment. A descriptor that is only looked at stays in the message.
    let seen = receive_with(fd, bytes, libc::MSG_PEEK, size_of::<Control>())?;
    if seen.is_cut {
        let received = limit::beyond(|| receive_with(fd, bytes, libc::MSG_WAITALL, size_of::<Control>()))?;
        return Ok((received.len, received.passed));
    }
    Ok((receive_with(fd, bytes, libc::MSG_WAITALL, 0)?.len, seen.passed))
}

struct Received {
    len: usize,
    passed: Option<OwnedFd>,
    /// Whether the message has a descriptor that isn't in `passed`.
    is_cut: bool,
}

fn receive_with(fd: Fd, bytes: &mut [u8], flags: c_int, control_len: usize) -> Result<Received> {
    let mut control = Control([0; 32]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = message_header(&mut part, &mut control, control_len);
    let flags = flags | libc::MSG_CMSG_CLOEXEC | libc::MSG_NOSIGNAL;
    // SAFETY: all buffers that `message` names live through the call.
    let len = check(unsafe { raw::call!(libc::SYS_recvmsg, fd, &raw mut message, flags) })?;
    // SAFETY: `message` is as the kernel filled it in.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let mut passed = None;
    if !header.is_null() {
        // SAFETY: not null, so it points to a header within `control`.
        let cmsg = unsafe { header.read() };
        if cmsg.cmsg_level == libc::SOL_SOCKET && cmsg.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: SCM_RIGHTS carries at least one descriptor.
            let fd = unsafe { libc::CMSG_DATA(header).cast::<Fd>().read_unaligned() };
            passed = Some(OwnedFd(fd));
        }
    }
    let is_cut = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Received { len: usize::try_from(len).unwrap_or(0), passed, is_cut })
}

/// Sends a whole message with one descriptor, by sendmsg(2).
pub(crate) fn send_with(fd: Fd, bytes: &[u8], passed: Fd, flags: c_int) -> Result<c_int> {
    const FD_LEN: u32 = size_of::<Fd>() as u32;
    let mut control = Control([0; 32]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: plain arithmetic.
    let control_len = unsafe { libc::CMSG_SPACE(FD_LEN) } as usize;
    let message = message_header(&mut part, &mut control, control_len);
    // SAFETY: `message` names a control buffer with room for one header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: not null, so there is room for a header within `control`.
    let cmsg = unsafe { &mut *header };
    cmsg.cmsg_level = libc::SOL_SOCKET;
    cmsg.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: plain arithmetic.
    cmsg.cmsg_len = unsafe { libc::CMSG_LEN(FD_LEN) } as _;
    // SAFETY: the control buffer has room for the header and one descriptor.
    unsafe { libc::CMSG_DATA(header).cast::<Fd>().write_unaligned(passed) };
    // SAFETY: all buffers that `message` names live through the call.
    check(unsafe { raw::call!(libc::SYS_sendmsg, fd, &raw const message, flags | libc::MSG_NOSIGNAL) })
}

/// Writes the machine's own host name, not the grid name.
pub(crate) fn host_name(name: &mut libc::utsname) -> Result<()> {
    // SAFETY: `name` is writable.
    check(unsafe { raw::call!(libc::SYS_uname, std::ptr::from_mut(name)) }).map(drop)
}

/// The time of a clock that only goes forward.
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Has the kernel run the calling thread sooner after it wakes, with no larger share of the
/// processor (sched_setattr(2)). Kernels before Linux 6.12 take no notice.
pub(crate) fn ask_for_short_slices() -> Result<c_int> {
    /// The shortest slice that the kernel grants.
    const SLICE_NANOSECONDS: u64 = 100_000;
    // SAFETY: all-zero is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: `attributes` is writable for its size.
    check(unsafe { raw::call!(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })?;
    attributes.sched_runtime = SLICE_NANOSECONDS;
    // SAFETY: `attributes` is readable for its size, which the kernel filled in.
    check(unsafe { raw::call!(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

//! The functions that the shim stands in front of.
//!
//! Each call goes to the next definition after the shim's own, so that several preloaded libraries
//! chain.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    addrinfo, epoll_event, hostent, ifaddrs, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, utsname,
};

use crate::sys;

/// `struct gaicb` of netdb.h: one name that a program has resolved.
#[repr(C)]
pub(crate) struct Request {
    pub(crate) name: *const c_char,
    pub(crate) service: *const c_char,
    pub(crate) hints: *const addrinfo,
    pub(crate) found: *mut addrinfo,
    /// The result, as gai_error(3) returns it.
    pub(crate) status: c_int,
}

macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty, else $missing:expr;)*) => {
        $(
            /// Calls the next definition of this function.
            ///
            /// # Safety
            /// As the function itself demands.
            #[allow(clippy::too_many_arguments, clippy::unused_unit, reason = "as the C functions are")]
            pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
                let pointer = resolve(&found::$name, name_of!($name));
                if pointer.is_null() {
                    sys::set_errno(libc::ENOSYS);
                    return $missing;
                }
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                // SAFETY: the C library's function of this name has this signature.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(pointer) };
                // SAFETY: the caller fulfils what the function demands.
                unsafe { function($($arg),*) }
            }
        )*

        /// Where the next definition of each function was found; null before that.
        #[allow(non_upper_case_globals, reason = "as the functions")]
        mod found {
            use super::{AtomicPtr, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        /// Looks for the next definitions of all functions, while that can still wait for a lock.
        pub(crate) fn find_all() {
            $(resolve(&found::$name, name_of!($name));)*
            // Those of other libraries may be missing, of which the program needs no notice.
            // SAFETY: takes nothing.
            unsafe { libc::dlerror() };
        }
    };
}

macro_rules! name_of {
    ($name:ident) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        NAME
    }};
}

fn resolve(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    slot.store(found, Ordering::Relaxed);
    found
}

/// What the C library keeps of a cleanup handler (`struct _pthread_cleanup_buffer`).
#[repr(C)]
pub(crate) struct Cleanup {
    routine: *mut c_void,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut c_void,
}

impl Cleanup {
    /// A buffer that holds no routine yet.
    pub(crate) const fn new() -> Self {
        let null = std::ptr::null_mut();
        Self { routine: null, argument: null, cancel_type: 0, previous: null }
    }
}

type Routine = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Cleanup, routine: Routine, argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
}

/// Has a routine called if this thread is cancelled before [`cleanup_pop`].
///
/// # Safety
/// The buffer stays in its place until then. The routine may be called with the argument.
pub(crate) unsafe fn cleanup_push(buffer: &mut Cleanup, routine: Routine, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { _pthread_cleanup_push(buffer, routine, argument) };
}

/// Forgets the routine that [`cleanup_push`] was given.
///
/// # Safety
/// It was the last routine pushed.
pub(crate) unsafe fn cleanup_pop(buffer: &mut Cleanup) {
    // SAFETY: the caller's promise.
    unsafe { _pthread_cleanup_pop(buffer, 0) };
}

next! {
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int, else -libc::ENOSYS;
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int,
        else -libc::ENOSYS;
    io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t
    ) -> c_int, else -libc::ENOSYS;
    io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int, else -libc::ENOSYS;
    chroot(path: *const c_char) -> c_int, else -1;
    setuid(user: libc::uid_t) -> c_int, else -1;
    seteuid(user: libc::uid_t) -> c_int, else -1;
    setreuid(real: libc::uid_t, effective: libc::uid_t) -> c_int, else -1;
    setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) -> c_int, else -1;
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, else -1;
    ppoll(
        fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
        mask: *const libc::sigset_t
    ) -> c_int, else -1;
    pselect(
        count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, others: *mut libc::fd_set,
        timeout: *const libc::timespec, mask: *const libc::sigset_t
    ) -> c_int, else -1;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, else -1;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, else -1;
    listen(fd: c_int, backlog: c_int) -> c_int, else -1;
    accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, else -1;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, else -1;
    sendto(
        fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, room: socklen_t
    ) -> ssize_t, else -1;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, else -1;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, else -1;
    recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t, else -1;
    __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t, else -1;
    recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t
    ) -> ssize_t, else -1;
    __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, whole: size_t, flags: c_int, address: *mut sockaddr,
        room: *mut socklen_t
    ) -> ssize_t, else -1;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, else -1;
    recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec
    ) -> c_int, else -1;
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1;
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, else -1;
    __open_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;
    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, else std::ptr::null_mut();
    fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, else std::ptr::null_mut();
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, else -1;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, else -1;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int, else -1;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int, else -1;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, else -1;
    close(fd: c_int) -> c_int, else -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else -1;
    closefrom(first: c_int) -> (), else ();
    epoll_create(size: c_int) -> c_int, else -1;
    epoll_create1(flags: c_int) -> c_int, else -1;
    dup(fd: c_int) -> c_int, else -1;
    dup2(from: c_int, to: c_int) -> c_int, else -1;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int, else -1;
    fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int, else -1;
    fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int, else -1;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int, else -1;
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, else -1;
    waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t, else -1;
    kill(pid: libc::pid_t, signal: c_int) -> c_int, else -1;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, else -1;
    signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t, else libc::SIG_ERR;
    _exit(status: c_int) -> (), else ();
    quick_exit(status: c_int) -> (), else ();
    killpg(group: libc::pid_t, signal: c_int) -> c_int, else -1;
    getifaddrs(list: *mut *mut ifaddrs) -> c_int, else -1;
    freeifaddrs(list: *mut ifaddrs) -> (), else ();
    gethostname(name: *mut c_char, len: size_t) -> c_int, else -1;
    __gethostname_chk(name: *mut c_char, len: size_t, room: size_t) -> c_int, else -1;
    gethostid() -> c_long, else 0;
    uname(name: *mut utsname) -> c_int, else -1;
    getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, result: *mut *mut addrinfo)
        -> c_int, else libc::EAI_SYSTEM;
    getaddrinfo_a(mode: c_int, list: *const *mut Request, count: c_int, event: *mut c_void) -> c_int,
        else libc::EAI_SYSTEM;
    getnameinfo(
        address: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t,
        service: *mut c_char, service_len: socklen_t, flags: c_int
    ) -> c_int, else libc::EAI_SYSTEM;
    gethostbyname(name: *const c_char) -> *mut hostent, else std::ptr::null_mut();
    gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent, else std::ptr::null_mut();
    gethostbyaddr(address: *const c_void, len: socklen_t, family: c_int) -> *mut hostent, else std::ptr::null_mut();
    gethostbyname_r(
        name: *const c_char, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int, else libc::ENOSYS;
    gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int, else libc::ENOSYS;
    gethostbyaddr_r(
        address: *const c_void, address_len: socklen_t, family: c_int, entry: *mut hostent,
        buffer: *mut c_char, len: size_t, result: *mut *mut hostent, error: *mut c_int
    ) -> c_int, else libc::ENOSYS;
}

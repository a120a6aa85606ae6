//! What a former program of this process has handed over. Nothing of it is believed
//! before it is checked: the variable may come from anywhere.
#![allow(unsafe_code, reason = "descriptors that are numbers get an owner here")]

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use isthmus_wire::DecodeError;
use isthmus_wire::upgrade::{Kind, Listener, MAX_BYTES, Pair, Service, State};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, SealFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use socket2::{Domain, Protocol, SockRef, Type};

use super::Carried;
use super::replace::SEALS;

/// The environment variable with the descriptor of the memory file.
pub const VARIABLE: &str = "ISTHMUS_UPGRADE";

/// Why nothing is taken over from a former program.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={value:?} is not from an upgrade: {reason}. Only a service that is replaced in place sets it: \
     unset it, and start the service again"
)]
pub struct InheritError {
    value: String,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("it is no number of a descriptor")]
    NoNumber,
    #[error("descriptor {number}, {what}: {reason}")]
    Descriptor { number: RawFd, what: &'static str, reason: String },
    #[error(transparent)]
    State(#[from] DecodeError),
}

/// What a former program has handed over.
#[derive(Debug)]
pub struct Inherited {
    /// The service that has handed over.
    pub service: Service,
    listeners: Vec<(SocketAddr, TcpListener)>,
    carried: Carried,
}

impl Inherited {
    /// Takes over what the environment names, and removes the variable. `None` if the environment
    /// names nothing.
    ///
    /// # Errors
    /// If the environment names something else. Descriptors may be closed then.
    ///
    /// # Safety
    /// The process must have no other thread, and nothing in it may own a descriptor but standard
    /// input, output and errors.
    pub unsafe fn take() -> Result<Option<Self>, InheritError> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        // SAFETY: there is no other thread.
        unsafe { std::env::remove_var(VARIABLE) };
        let value = value.to_string_lossy().into_owned();
        // SAFETY: as the caller has promised.
        unsafe { Self::read(&value) }.map(Some).map_err(|reason| InheritError { value, reason })
    }

    /// Takes over what the variable's value names.
    ///
    /// # Safety
    /// As of [`take`](Self::take).
    unsafe fn read(value: &str) -> Result<Self, Reason> {
        let number = value.parse::<RawFd>().ok().filter(|number| *number > 2 && number.to_string() == value);
        let number = number.ok_or(Reason::NoNumber)?;
        // SAFETY: as the caller has promised.
        let memory = unsafe { claim(number, "the state") }?;
        let state = read_memory(memory).map_err(|reason| wrong(number, "the state", reason))?;
        let State { service, connections, bytes, listeners, pairs } = State::decode(&state)?;
        // `decode` has seen to it that no number occurs twice.
        if listeners
            .iter()
            .map(|one| one.descriptor)
            .chain(pairs.iter().flat_map(Pair::descriptors))
            .any(|descriptor| i64::from(descriptor) == i64::from(number))
        {
            return Err(wrong(number, "the state", "it names itself"));
        }
        // SAFETY: as the caller has promised.
        let listeners = listeners.iter().map(|listener| unsafe { take_listener(listener) });
        let listeners = listeners.collect::<Result<_, _>>()?;
        // SAFETY: as the caller has promised.
        let pairs = pairs.into_iter().map(|pair| pair.try_map(|number, kind| unsafe { take(number, kind) }));
        let pairs = pairs.collect::<Result<_, _>>()?;
        Ok(Self { service, listeners, carried: Carried { connections, bytes, pairs } })
    }

    /// How many listeners and how many pairs were handed over.
    pub fn counts(&self) -> (usize, usize) {
        (self.listeners.len(), self.carried.pairs.len())
    }

    pub(super) fn into_parts(self) -> (Vec<(SocketAddr, TcpListener)>, Carried) {
        (self.listeners, self.carried)
    }
}

fn wrong(number: RawFd, what: &'static str, reason: impl Into<String>) -> Reason {
    Reason::Descriptor { number, what, reason: reason.into() }
}

/// Gives an open descriptor an owner, and has it be closed over the next `execve`. An error if it
/// isn't open.
///
/// # Safety
/// No other owner of this number may be in the process.
unsafe fn claim(number: RawFd, what: &'static str) -> Result<OwnedFd, Reason> {
    // SAFETY: it is only looked at here, and if it isn't open, the kernel says so.
    let looked_at = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(looked_at, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .map_err(|error| wrong(number, what, error.to_string()))?;
    // SAFETY: it is open, and as the caller has promised.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The content of a memory file. An error if somebody can still change it.
fn read_memory(memory: OwnedFd) -> Result<Vec<u8>, String> {
    let seals = match fcntl(&memory, FcntlArg::F_GET_SEALS) {
        Ok(seals) => SealFlag::from_bits_retain(seals),
        Err(Errno::EINVAL) => return Err("it is no memory file".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if !seals.contains(SEALS) {
        return Err("the memory file isn't sealed".to_owned());
    }
    let status = fstat(&memory).map_err(|error| error.to_string())?;
    if status.st_uid != nix::unistd::geteuid().as_raw() {
        return Err(format!("the memory file belongs to user id {}", status.st_uid));
    }
    let length = usize::try_from(status.st_size).unwrap_or(usize::MAX);
    if length > MAX_BYTES {
        return Err(format!("the memory file has {length} bytes, at most {MAX_BYTES} are allowed"));
    }
    let mut bytes = vec![0; length];
    let mut file = File::from(memory);
    let read = io::Seek::rewind(&mut file).and_then(|()| file.read_exact(&mut bytes));
    read.map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn raw(number: u32, what: &'static str) -> Result<RawFd, Reason> {
    RawFd::try_from(number).map_err(|_| wrong(RawFd::MAX, what, "no descriptor has such a number"))
}

/// Takes over a listener.
///
/// # Safety
/// As of [`claim`].
unsafe fn take_listener(listener: &Listener) -> Result<(SocketAddr, TcpListener), Reason> {
    const WHAT: &str = "a listener";
    let number = raw(listener.descriptor, WHAT)?;
    // SAFETY: as the caller has promised.
    let descriptor = unsafe { claim(number, WHAT) }?;
    let checked = check_socket(descriptor.as_fd(), true);
    checked.map_err(|reason| wrong(number, WHAT, reason))?;
    let socket = TcpListener::from(descriptor);
    let at = socket.local_addr().map_err(|error| wrong(number, WHAT, error.to_string()))?;
    let configured = listener.configured;
    if at.ip() != configured.ip() || configured.port() != 0 && at.port() != configured.port() {
        return Err(wrong(number, WHAT, format!("it is at {at}, not at {configured}")));
    }
    Ok((configured, socket))
}

/// Takes over a descriptor, which must be of this kind.
///
/// # Safety
/// As of [`claim`].
unsafe fn take(number: u32, kind: Kind) -> Result<OwnedFd, Reason> {
    let what = match kind {
        Kind::Socket => "a socket",
        Kind::PipeRead => "the end of a pipe to read from",
        Kind::PipeWrite => "the end of a pipe to write to",
    };
    let number = raw(number, what)?;
    // SAFETY: as the caller has promised.
    let descriptor = unsafe { claim(number, what) }?;
    let checked = match kind {
        Kind::Socket => check_socket(descriptor.as_fd(), false),
        Kind::PipeRead => check_pipe(descriptor.as_fd(), OFlag::O_RDONLY),
        Kind::PipeWrite => check_pipe(descriptor.as_fd(), OFlag::O_WRONLY),
    };
    checked.map_err(|reason| wrong(number, what, reason))?;
    Ok(descriptor)
}

/// Checks that a descriptor is a TCP socket, and that it listens or doesn't.
fn check_socket(descriptor: BorrowedFd<'_>, listens: bool) -> Result<(), String> {
    let socket = SockRef::from(&descriptor);
    let kind = || Ok::<_, io::Error>((socket.domain()?, socket.r#type()?, socket.protocol()?));
    let (domain, r#type, protocol) = kind().map_err(|error| error.to_string())?;
    let is_ip = domain == Domain::IPV4 || domain == Domain::IPV6;
    if !is_ip || r#type != Type::STREAM || protocol != Some(Protocol::TCP) {
        return Err("it is no TCP socket".to_owned());
    }
    match socket.is_listener() {
        Ok(found) if found == listens => {}
        Ok(true) => return Err("it is a listener".to_owned()),
        Ok(false) => return Err("it doesn't listen".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    socket.set_nonblocking(true).map_err(|error| error.to_string())
}

/// Checks that a descriptor is this end of a pipe.
fn check_pipe(descriptor: BorrowedFd<'_>, access: OFlag) -> Result<(), String> {
    let status = fstat(descriptor).map_err(|error| error.to_string())?;
    let is_pipe = SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFIFO;
    let flags = fcntl(descriptor, FcntlArg::F_GETFL).map_err(|error| error.to_string())?;
    let flags = OFlag::from_bits_retain(flags);
    if !is_pipe || flags & OFlag::O_ACCMODE != access {
        return Err("it is something else".to_owned());
    }
    fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(|error| error.to_string())?;
    Ok(())
}

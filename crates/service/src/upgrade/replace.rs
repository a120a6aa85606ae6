//! Hands a process over to another program.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use isthmus_wire::upgrade::State;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Program, VARIABLE};

/// The seals of the memory file, by which nothing in it can be changed any more.
pub(super) const SEALS: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);
/// `MFD_NOEXEC_SEAL` (Linux 6.3). Some systems refuse memory files without it.
const NO_EXEC: MFdFlags = MFdFlags::from_bits_retain(8);

/// The number of a descriptor, as it is handed over.
pub(super) fn number(descriptor: BorrowedFd<'_>) -> u32 {
    // No descriptor is negative.
    descriptor.as_raw_fd().unsigned_abs()
}

/// A sealed memory file with a state.
fn memory(state: &State) -> io::Result<OwnedFd> {
    let bytes = state.encode().map_err(io::Error::other)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = match memfd_create(c"isthmus-upgrade", flags | NO_EXEC) {
        Err(Errno::EINVAL) => memfd_create(c"isthmus-upgrade", flags)?,
        made => made?,
    };
    let mut file = File::from(file);
    file.write_all(&bytes)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(file.into())
}

/// Puts the program in the place of this one. `handed` are the descriptors that `state` names: only
/// these stay open. Returns only if that fails; then nothing has changed.
pub fn replace(program: &Program, state: &State, handed: &[BorrowedFd<'_>]) -> io::Error {
    match memory(state) {
        Ok(memory) => {
            crate::log::flush();
            let all: Vec<_> = handed.iter().copied().chain([memory.as_fd()]).collect();
            let replaced = keep_open(&all, true).and_then(|()| execute(program, memory.as_fd()));
            // Whatever this process starts later must not get them.
            let closed = keep_open(&all, false);
            replaced.and(closed).err().unwrap_or_else(|| io::Error::other("execve has returned"))
        }
        Err(error) => error,
    }
}

fn keep_open(descriptors: &[BorrowedFd<'_>], open: bool) -> io::Result<()> {
    let flags = if open { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    let set = |descriptor| fcntl(descriptor, FcntlArg::F_SETFD(flags)).map(drop);
    Ok(descriptors.iter().try_for_each(set)?)
}

fn execute(program: &Program, memory: BorrowedFd<'_>) -> io::Result<()> {
    let text = |text: OsString| Ok::<_, io::Error>(CString::new(text.into_vec())?);
    let path = text(program.path().as_os_str().to_owned())?;
    let arguments = program.arguments().iter().cloned().map(text).collect::<Result<Vec<_>, _>>()?;
    let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
    let own = (VARIABLE.into(), number(memory).to_string().into());
    let environment = others.chain([own]).map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(name)
    });
    let environment = environment.collect::<Result<Vec<_>, _>>()?;
    nix::unistd::execve(&path, &arguments, &environment)?;
    Ok(())
}

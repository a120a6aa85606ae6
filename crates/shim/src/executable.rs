//! A quick check of a program before it starts. It recognises nearly all programs
//! that can be preloaded; the agent inspects the others. It allocates no memory
//! beyond the stack.

use std::ffi::{CStr, c_char};

use crate::sys::{self, Fd, OwnedFd};

/// How many bytes of a program are read. Its headers, the name of its loader and its notes are in
/// them in whatever linkers make.
const START: usize = 4096;
/// How many interpreters of interpreters Linux follows.
const SCRIPTS_MAX: usize = 5;
/// How the file name of the GNU C library's loader begins, in whatever directory.
const GNU_LOADERS: [&[u8]; 4] = [b"ld-linux", b"ld-2.", b"ld64.so", b"ld.so"];

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "powerpc64")]
const MACHINE: u16 = 21;
#[cfg(target_arch = "riscv64")]
const MACHINE: u16 = 243;

/// How an exec call names the program.
#[derive(Clone, Copy)]
pub(crate) enum Named<'a> {
    Path(&'a CStr),
    /// The program is named by a name that is looked for in `PATH`.
    Name(&'a CStr),
    /// The program is named by the descriptor of an open file.
    File(Fd),
    /// The program is named by a null pointer: execve(2) fails.
    Not,
}

impl<'a> Named<'a> {
    /// Names a program by its path.
    ///
    /// # Safety
    /// `path` is null or a C string.
    pub(crate) unsafe fn path(path: *const c_char) -> Self {
        // SAFETY: the caller's promise.
        if path.is_null() { Self::Not } else { Self::Path(unsafe { CStr::from_ptr(path) }) }
    }

    /// The program's name without its directory; `None` if it is named by a descriptor or not at
    /// all.
    pub(crate) fn base(self) -> Option<&'a [u8]> {
        let (Self::Path(name) | Self::Name(name)) = self else { return None };
        name.to_bytes().rsplit(|byte| *byte == b'/').next()
    }

    /// Names a program by a name that is looked for in `PATH`.
    ///
    /// # Safety
    /// `name` is null or a C string.
    pub(crate) unsafe fn name(name: *const c_char) -> Self {
        // SAFETY: the caller's promise.
        if name.is_null() { Self::Not } else { Self::Name(unsafe { CStr::from_ptr(name) }) }
    }
}

pub(crate) enum Executable {
    Own(OwnedFd),
    /// A descriptor of the program's own.
    Given(Fd),
}

impl Executable {
    pub(crate) fn raw(&self) -> Fd {
        match self {
            Self::Own(fd) => fd.raw(),
            Self::Given(fd) => *fd,
        }
    }
}

/// What a look at a program tells for its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The program preloads the library, or ignores it.
    Ordinary,
    /// The program is for another C library, and would not start with the shim.
    Repels,
}

/// Looks at a program; calls `doubt` if it may not be carried. What can't be
/// read is taken to be ordinary.
pub(crate) fn judge(named: Named<'_>, doubt: impl FnOnce(&Executable)) -> Judgement {
    let mut program = match named {
        Named::Not => return Judgement::Ordinary,
        Named::File(fd) => Executable::Given(fd),
        Named::Path(path) => match open(path) {
            Ok(fd) => Executable::Own(fd),
            Err(_) => return Judgement::Ordinary,
        },
        Named::Name(name) => match search(name) {
            Some(fd) => Executable::Own(fd),
            None => return Judgement::Ordinary,
        },
    };
    let mut start = [0; START];
    for _ in 0..SCRIPTS_MAX {
        let Ok(len) = sys::read_at_start(program.raw(), &mut start) else { return Judgement::Ordinary };
        let Some(interpreter) = interpreter(&mut start, len) else {
            let bytes = start.get(..len).unwrap_or_default();
            return match loader(bytes) {
                // Neither a program for this machine nor a script: execve(2)
                // or the agent reports what it is.
                Loader::Unknown if !bytes.starts_with(b"\x7fELF") => Judgement::Ordinary,
                Loader::Gnu if !sys::is_privileged(program.raw()) => Judgement::Ordinary,
                Loader::Gnu | Loader::Unknown => {
                    doubt(&program);
                    Judgement::Ordinary
                }
                Loader::Other => {
                    doubt(&program);
                    Judgement::Repels
                }
            };
        };
        program = match open(interpreter) {
            Ok(fd) => Executable::Own(fd),
            Err(_) => return Judgement::Ordinary,
        };
    }
    Judgement::Ordinary
}

/// Opens a program's file. Doesn't wait for the writer of a FIFO.
fn open(path: &CStr) -> sys::Result<OwnedFd> {
    sys::open_with(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)
}

/// The first program of this name in `PATH`, as execvp(3) would find it.
fn search(name: &CStr) -> Option<OwnedFd> {
    if name.to_bytes().contains(&b'/') {
        return open(name).ok();
    }
    // SAFETY: the name is a C string; the value is used before anything could
    // change it.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: a C string of the environment, if there is one.
    let path = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    let mut room = [0; START];
    for directory in path.to_bytes().split(|byte| *byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        let mut len = 0;
        for part in [directory, b"/", name.to_bytes_with_nul()] {
            let place = room.get_mut(len..len + part.len())?;
            place.copy_from_slice(part);
            len += part.len();
        }
        let candidate = CStr::from_bytes_until_nul(&room).ok()?;
        if sys::may_execute(candidate) {
            return open(candidate).ok();
        }
    }
    None
}

/// The interpreter of a script, as a C string within its first line.
fn interpreter(start: &mut [u8], len: usize) -> Option<&CStr> {
    if len >= start.len() {
        *start.last_mut()? = 0;
    } else {
        *start.get_mut(len)? = 0;
    }
    let line = start.strip_prefix(b"#!").map(<[u8]>::len)?;
    let from = start.len() - line;
    let blanks = start.get(from..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let from = from + blanks;
    let end = start.get(from..)?.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\n' | 0))?;
    *start.get_mut(from + end)? = 0;
    CStr::from_bytes_until_nul(start.get(from..)?).ok().filter(|path| !path.is_empty())
}

#[derive(Debug, PartialEq, Eq)]
enum Loader {
    Gnu,
    Other,
    /// The program has no loader, or the agent must inspect it.
    Unknown,
}

fn loader(bytes: &[u8]) -> Loader {
    const PT_INTERP: u32 = 3;
    const PT_NOTE: u32 = 4;
    let half = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let long = |at: usize| {
        let value = bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        usize::try_from(value).ok()
    };
    // ELF, 64 bits, little endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") || half(18) != Some(MACHINE) {
        return Loader::Unknown;
    }
    let (Some(table), Some(size), Some(count)) = (long(32), half(54), half(56)) else {
        return Loader::Unknown;
    };
    let mut found = Loader::Unknown;
    for index in 0..usize::from(count) {
        let Some(header) = table.checked_add(index * usize::from(size)) else { return Loader::Unknown };
        let content = || {
            let (from, len) = (long(header.checked_add(8)?)?, long(header.checked_add(32)?)?);
            bytes.get(from..from.checked_add(len)?)
        };
        match word(header) {
            None => return Loader::Unknown,
            Some(PT_INTERP) => {
                let Some(path) = content() else { return Loader::Unknown };
                let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let gnu = GNU_LOADERS.iter().any(|known| name.starts_with(known));
                found = if gnu { Loader::Gnu } else { Loader::Other };
            }
            // A note of Go's comes first in a segment of its own.
            Some(PT_NOTE) if content().and_then(|note| note.get(12..16)) == Some(b"Go\0\0") => {
                return Loader::Unknown;
            }
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::path::Path;

    fn doubtful(path: &Path) -> (bool, Judgement) {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let mut doubtful = false;
        let judgement = judge(Named::Path(&path), |_| doubtful = true);
        (doubtful, judgement)
    }

    #[test]
    fn ordinary_programs_raise_no_doubt() {
        for path in ["/bin/sh", "/proc/self/exe", "/nonexistent"] {
            assert_eq!(doubtful(Path::new(path)), (false, Judgement::Ordinary), "{path}");
        }
        let mut asked = false;
        judge(Named::Name(c"sh"), |_| asked = true);
        assert!(!asked);
    }

    #[test]
    fn names_are_searched() {
        assert!(search(c"sh").is_some());
        assert!(search(c"/bin/sh").is_some());
        assert!(search(c"no such program").is_none());
    }

    #[test]
    fn what_is_not_for_the_own_loader_raises_doubt() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::fs::read("/proc/self/exe").unwrap();
        let patched = |from: &[u8], to: &[u8]| {
            let mut bytes = own.clone();
            let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to);
            bytes
        };
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let musl = write("musl", &patched(b"ld-linux", b"ld-musl-"));
        assert_eq!(doubtful(&musl), (true, Judgement::Repels));
        let other = write("other", &patched(&MACHINE.to_le_bytes(), b"\x99\x00"));
        assert_eq!(doubtful(&other), (true, Judgement::Ordinary));
        let script = write("script", format!("#! {}\n", musl.display()).as_bytes());
        assert_eq!(doubtful(&script), (true, Judgement::Repels));
        let endless = write("endless", format!("#!{}/endless", directory.path().display()).as_bytes());
        assert_eq!(doubtful(&endless), (false, Judgement::Ordinary));
    }

    #[test]
    fn any_start_of_a_file_is_read_without_panic() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for at in 0..1024 {
            let mut bytes = own[..START].to_vec();
            bytes[at] = 0xff;
            let _ = loader(&bytes);
            let _ = loader(&own[..at]);
        }
    }
}

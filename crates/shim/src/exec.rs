//! Programs that the program starts stay in the job, whatever environment they get.
//! The agent is notified of programs that the library can't be preloaded into.
//!
//! All of this may run between `vfork` and `exec`, or in the one thread that a
//! `fork` has left of many: it takes no lock and no memory but the stack's and,
//! for large environments, mmap(2)'s.
//!
//! `execl`, `execle`, `execlp`, `system` and `popen` are not covered: they take
//! their environment from the program's own, which holds the library unless the
//! program itself took it out.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use isthmus_wire::sanitizer;
use isthmus_wire::shim::Request;

use crate::agent;
use crate::children;
use crate::executable::{self, Executable, Judgement, Named};
use crate::job::{Job, job};
use crate::sys;

/// A null-terminated list of strings, such as an environment.
pub(crate) type List = *const *const c_char;

/// The variable by which a program is started outside the job.
const OPT_OUT: &[u8] = b"ISTHMUS_SHIM=off";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// A variable of valgrind's launcher. The tool that it starts is static; the program that the tool
/// loads is carried all the same.
const VALGRIND: &[u8] = b"VALGRIND_LAUNCHER=";

/// Most variables of an environment that is rewritten on the stack.
const FEW: usize = 250;
/// Most bytes of an `LD_PRELOAD` that is put together on the stack.
const SHORT: usize = 1024;

unsafe extern "C" {
    static environ: List;
}

/// The variables of the program's own environment.
pub(crate) fn own_variables() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: while no thread changes it, as when the library is loaded.
    unsafe { entries(own_environment()) }
}

/// The program's own environment.
pub(crate) fn own_environment() -> List {
    // SAFETY: as the C library's own exec functions read it.
    unsafe { environ }
}

/// Starts a program in place of this one, as [`with_environment`] does. Tells the agent if it
/// becomes a rank or a daemon.
///
/// # Safety
/// As [`with_environment`].
pub(crate) unsafe fn in_place(
    named: Named<'_>,
    environment: List,
    start: impl FnOnce(List) -> c_int,
) -> c_int {
    if let Some(job) = job()
        && children::starts()
    {
        // SAFETY: the caller's promise.
        let rank = unsafe { entries(environment) }.filter_map(children::rank).min();
        if let Some((_, rank)) = rank {
            children::introduce(job, &Request::Rank { rank });
        } else if let Some(daemon) = named.base().and_then(children::daemon) {
            children::introduce(job, &Request::Daemon { daemon });
        }
    }
    // SAFETY: the caller's promise.
    unsafe { with_environment(named, environment, start) }
}

/// Starts a program by `start`, with the environment that it is to have.
///
/// # Safety
/// `environment` is an environment as execve(2) takes it.
pub(crate) unsafe fn with_environment(
    named: Named<'_>,
    environment: List,
    start: impl FnOnce(List) -> c_int,
) -> c_int {
    let Some(job) = job() else { return start(environment) };
    // SAFETY: the caller's promise.
    let given = unsafe { Given::read(environment, &job.preload) };
    if given.opted_out {
        return start(environment);
    }
    let judgement = executable::judge(named, |program| {
        if !given.valgrind {
            report(job, program);
        }
    });
    let wanted = (judgement == Judgement::Ordinary).then_some(job.preload.as_c_str());
    let is_settled = wanted.is_none() || given.has_order();
    if given.holds_other || given.holds_libraries != wanted.is_some() || !is_settled {
        // SAFETY: the caller's promise; `given` is what was read there.
        unsafe { rewritten(environment, &given, wanted, start) }
    } else {
        start(environment)
    }
}

/// Has the agent look at a program that is about to start. The agent looks through this process's
/// descriptor, so this waits for it.
fn report(job: &Job, program: &Executable) {
    if let Ok(fd) = u32::try_from(program.raw()) {
        // Without an agent there is no job to report to.
        let _ = agent::look_up(job, &Request::Starting { fd });
    }
}

/// The parts of an environment that the shim uses.
struct Given<'a> {
    count: usize,
    /// The place of `LD_PRELOAD` among the variables, and its value.
    preload: Option<(usize, &'a [u8])>,
    /// The libraries that the job preloads: this one, and perhaps the one for MPI.
    libraries: &'a [u8],
    holds_libraries: bool,
    /// Whether `LD_PRELOAD` names one of them by its path on another node of the job.
    holds_other: bool,
    /// The place of the address sanitizer's options among the variables, and their value.
    sanitizer: Option<(usize, &'a [u8])>,
    opted_out: bool,
    valgrind: bool,
}

/// The variables of an environment.
///
/// # Safety
/// `environment` is as execve(2) takes it, and lives as long as the variables are used.
unsafe fn entries<'a>(environment: List) -> impl Iterator<Item = &'a [u8]> {
    let mut next = environment;
    std::iter::from_fn(move || {
        // execve(2) takes a null pointer for an empty environment.
        if next.is_null() {
            return None;
        }
        // SAFETY: before the end of the list, by the caller's promise.
        let entry = unsafe { *next };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the end is further on.
        next = unsafe { next.add(1) };
        // SAFETY: entries are C strings, by the caller's promise.
        Some(unsafe { CStr::from_ptr(entry) }.to_bytes())
    })
}

impl<'a> Given<'a> {
    /// # Safety
    /// `environment` is an environment as execve(2) takes it.
    unsafe fn read(environment: List, libraries: &'a CStr) -> Self {
        let mut given = Self {
            count: 0,
            preload: None,
            libraries: libraries.to_bytes(),
            holds_libraries: false,
            holds_other: false,
            sanitizer: None,
            opted_out: false,
            valgrind: false,
        };
        // SAFETY: the caller's promise.
        for entry in unsafe { entries(environment) } {
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                // The dynamic linker takes the last of these variables.
                given.preload = Some((given.count, value));
                given.holds_libraries =
                    words(given.libraries).all(|own| words(value).any(|word| word == own));
                given.holds_other = words(value).any(|word| given.is_other(word));
            }
            if let Some(value) = entry.strip_prefix(sanitizer::ASSIGNMENT) {
                // The sanitizer takes the first of these variables, as getenv(3).
                given.sanitizer = given.sanitizer.or(Some((given.count, value)));
            }
            given.opted_out |= entry == OPT_OUT;
            given.valgrind |= entry.starts_with(VALGRIND);
            given.count += 1;
        }
        given
    }

    /// Whether the address sanitizer's options say whether it must be the first library.
    fn has_order(&self) -> bool {
        self.sanitizer.is_some_and(|(_, value)| sanitizer::has_order(value))
    }

    /// Writes the sanitizer's options, with the one by which it needn't be the first library.
    /// Returns the length with the variable's name and the final zero.
    fn compose_order(&self, out: &mut [u8]) -> usize {
        let mut text = Text { out, len: 0 };
        text.put(sanitizer::ASSIGNMENT);
        if let Some((_, value)) = self.sanitizer.filter(|(_, value)| !value.is_empty()) {
            text.put(value);
            text.put(b":");
        }
        text.put(sanitizer::ORDER);
        text.put(b"\0");
        text.len
    }

    fn is_own(&self, word: &[u8]) -> bool {
        words(self.libraries).any(|own| word == own)
    }

    /// Whether a word names one of the libraries in the job's directory on another node,
    /// where the directory's path differs. Launchers pass the head's `LD_PRELOAD` on.
    fn is_other(&self, word: &[u8]) -> bool {
        let same = |end| words(self.libraries).any(|own| within_job(own) == Some(end));
        !self.is_own(word) && within_job(word).is_some_and(same)
    }

    /// Writes `LD_PRELOAD` with `libraries` at its beginning, and without the job's other ones.
    /// Returns the length with the variable's name and the final zero.
    fn compose(&self, libraries: Option<&CStr>, out: &mut [u8]) -> usize {
        let mut text = Text { out, len: 0 };
        text.put(PRELOAD);
        let own = libraries.map(CStr::to_bytes);
        let others = words(self.preload.map(|(_, value)| value).unwrap_or_default());
        let mut first = true;
        for word in own.into_iter().chain(others.filter(|word| !self.is_own(word) && !self.is_other(word))) {
            if !first {
                text.put(b":");
            }
            text.put(word);
            first = false;
        }
        text.put(b"\0");
        text.len
    }
}

/// A text that is put together. Its length counts also what has no room.
struct Text<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.out.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.len += bytes.len();
    }
}

/// A variable that is put together, on the stack or on pages of its own.
struct Variable {
    short: [u8; SHORT],
    long: sys::Pages,
}

impl Variable {
    /// Puts a variable together by `compose`, which returns the length that it needs.
    fn new(compose: impl Fn(&mut [u8]) -> usize) -> sys::Result<Self> {
        let mut short = [0; SHORT];
        let len = compose(&mut short);
        let long = sys::Pages::new(if len > SHORT { len } else { 0 })?;
        if len > SHORT {
            // SAFETY: fresh pages of at least this length, this function's alone.
            compose(unsafe { std::slice::from_raw_parts_mut(long.pointer().cast::<u8>(), len) });
        }
        Ok(Self { short, long })
    }

    fn as_ptr(&self) -> *const c_char {
        if self.long.pointer().is_null() { self.short.as_ptr() } else { self.long.pointer() as *const u8 }
            .cast()
    }
}

/// The end of a library's path: the job's id and the file's name.
fn within_job(path: &[u8]) -> Option<&[u8]> {
    const ID_LEN: usize = 32;
    let file = path.iter().rposition(|byte| *byte == b'/')?;
    let start = file.checked_sub(ID_LEN)?;
    let id = path.get(start..file)?;
    let begins = start.checked_sub(1).and_then(|before| path.get(before)) == Some(&b'/');
    (begins && id.iter().all(u8::is_ascii_hexdigit)).then(|| path.get(start..)).flatten()
}

/// The libraries in an `LD_PRELOAD`, as ld.so(8) separates them.
fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b':' | b' ')).filter(|word| !word.is_empty())
}

/// Starts a program with another `LD_PRELOAD`, and what goes with it.
///
/// # Safety
/// `environment` is an environment as execve(2) takes it, and `given` what is
/// in it.
unsafe fn rewritten(
    environment: List,
    given: &Given<'_>,
    libraries: Option<&CStr>,
    start: impl FnOnce(List) -> c_int,
) -> c_int {
    let mut few = [std::ptr::null(); FEW + 3];
    let Ok(preload) = Variable::new(|out| given.compose(libraries, out)) else { return out_of_memory() };
    let Ok(order) = Variable::new(|out| given.compose_order(out)) else { return out_of_memory() };
    let entries = given.count + 3;
    let Ok(many) = sys::Pages::new(if entries > few.len() { entries * size_of::<usize>() } else { 0 }) else {
        return out_of_memory();
    };
    let list: *mut *const c_char = if entries > few.len() { many.pointer().cast() } else { few.as_mut_ptr() };
    for index in 0..given.count {
        // SAFETY: both lists are at least that long.
        unsafe { *list.add(index) = *environment.add(index) };
    }
    let mut count = given.count;
    let mut put = |place: Option<usize>, variable: &Variable| {
        let place = place.unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        // SAFETY: there is room for two entries more and the end.
        unsafe { *list.add(place) = variable.as_ptr() };
    };
    put(given.preload.map(|(index, _)| index), &preload);
    if libraries.is_some() && !given.has_order() {
        put(given.sanitizer.map(|(index, _)| index), &order);
    }
    // SAFETY: as above.
    unsafe { *list.add(count) = std::ptr::null() };
    start(list)
}

fn out_of_memory() -> c_int {
    sys::set_errno(libc::ENOMEM);
    -1
}

/// A C library's function, found before it is needed: `dlsym` takes locks.
pub(crate) struct Found(AtomicPtr<c_void>, &'static CStr);

impl Found {
    const fn new(name: &'static CStr) -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()), name)
    }

    fn find(&self) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! found {
    ($($module:ident $text:literal ($($arg:ident: $type:ty),*), else $missing:expr;)*) => {
        $(
            pub(crate) mod $module {
                use super::*;
                pub(super) static FOUND: Found = Found::new($text);
                /// Calls the next definition of this function.
                ///
                /// # Safety
                /// As the function itself demands.
                pub(crate) unsafe fn call($($arg: $type),*) -> c_int {
                    let pointer = FOUND.find();
                    if pointer.is_null() {
                        sys::set_errno(libc::ENOSYS);
                        return $missing;
                    }
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                    // SAFETY: the C library's function of this name has this signature.
                    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(pointer) };
                    // SAFETY: the caller fulfils what the function demands.
                    unsafe { function($($arg),*) }
                }
            }
        )*
        /// Finds all these functions, while that can still wait for a lock.
        pub(crate) fn find_all() {
            $($module::FOUND.find();)*
        }
    };
}

found! {
    execve c"execve" (path: *const c_char, arguments: List, environment: List), else -1;
    execvpe c"execvpe" (name: *const c_char, arguments: List, environment: List), else -1;
    fexecve c"fexecve" (fd: c_int, arguments: List, environment: List), else -1;
    posix_spawn c"posix_spawn" (
        pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ), else libc::ENOSYS;
    posix_spawnp c"posix_spawnp" (
        pid: *mut libc::pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ), else libc::ENOSYS;
}

#[cfg(test)]
mod tests;

//! System calls by the processor's own instruction. `libc::syscall` would be the hook of that name.
//! It would look for the next definition of that name, which a program's allocator may not survive.

use std::ffi::{c_int, c_long, c_uint};

use crate::errno;

/// A system call's argument.
pub(crate) trait Word {
    fn word(self) -> c_long;
}

macro_rules! words {
    ($($type:ty),*) => {
        $(impl Word for $type {
            fn word(self) -> c_long {
                self as c_long
            }
        })*
    };
}

words!(c_int, c_uint, c_long, u64, usize);

impl<T> Word for *const T {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl<T> Word for *mut T {
    fn word(self) -> c_long {
        self as c_long
    }
}

/// Makes a system call with these arguments. Returns what syscall(2) returns, and sets `errno` as
/// it does.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let arguments = [$($crate::raw::Word::word($argument)),*];
        let mut all = [0; 6];
        for (to, from) in all.iter_mut().zip(arguments) {
            *to = from;
        }
        $crate::raw::make($number, all)
    }};
}

pub(crate) use call;

/// Makes the system call `number`. Returns what syscall(2) returns, and sets `errno` as it does.
///
/// # Safety
/// As the call demands.
pub(crate) unsafe fn make(number: c_long, arguments: [c_long; 6]) -> c_long {
    const ERRORS: std::ops::Range<c_long> = -4095..0;
    // SAFETY: the caller's promise.
    let result = unsafe { enter(number, arguments) };
    if ERRORS.contains(&result) {
        errno::set_errno(c_int::try_from(-result).unwrap_or(libc::EINVAL));
        return -1;
    }
    result
}

/// # Safety
/// As the call demands.
#[cfg(target_arch = "x86_64")]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the registers are those of the kernel's interface (syscall(2)), which keeps all
    // others.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// # Safety
/// As the call demands.
#[cfg(target_arch = "aarch64")]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the registers are those of the kernel's interface (syscall(2)), which keeps all
    // others.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_the_c_library() {
        // SAFETY: takes nothing.
        assert_eq!(unsafe { call!(libc::SYS_getpid) }, c_long::from(std::process::id()));
        // SAFETY: no pointer is passed.
        assert_eq!(unsafe { call!(libc::SYS_close, -1) }, -1);
        assert_eq!(errno::errno(), libc::EBADF);
        let bytes = [1_u8, 2, 3];
        let name = c"raw";
        // SAFETY: the name is a C string.
        let file = unsafe { call!(libc::SYS_memfd_create, name.as_ptr(), 0) };
        // SAFETY: the bytes are readable for their length. Four arguments and more.
        let written = unsafe { call!(libc::SYS_pwrite64, file, bytes.as_ptr(), bytes.len(), 5_usize) };
        assert_eq!(written, 3);
        let mut read = [9_u8; 9];
        // SAFETY: the room is writable for its length.
        assert_eq!(unsafe { call!(libc::SYS_pread64, file, read.as_mut_ptr(), read.len(), 0) }, 8);
        assert_eq!(read, [0, 0, 0, 0, 0, 1, 2, 3, 9]);
        // SAFETY: the descriptor is this test's.
        assert_eq!(unsafe { call!(libc::SYS_close, file) }, 0);
    }
}

//! The functions that a program calls instead of the C library's: nothing but
//! the way into the other modules.
//!
//! `extern "C-unwind"`, because the C library ends a cancelled thread by
//! unwinding its stack, out of `accept` for example.
//!
//! `fcntl`, `ioctl`, `open`, `prctl` and `syscall` are variadic in C. On the 64-bit Linux
//! ABIs a variadic call passes its first words where a plain call does, so they are
//! defined with the arguments that they may have.

macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            /// # Safety
            /// As the C library's function of this name demands.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: every promise that the callees demand is the one
                // that the caller of this C function gives.
                unsafe { $body }
            }
        )*
    };
}

mod descriptors;
mod files;
mod libraries;
mod messages;
mod names;
mod processes;
mod sockets;

// The hooks that own_calls leads to.
pub(crate) use descriptors::*;
pub(crate) use messages::*;
pub(crate) use names::uname;
pub(crate) use processes::{chroot, prctl};
pub(crate) use sockets::*;

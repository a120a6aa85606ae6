//! The messages between a supervisor and its parent.

/// Parent to supervisor, one byte each: a signal number to pass to the command, perhaps with
/// [`FROM_TERMINAL`], or [`END`]. The end of the socket means [`END`], too.
pub(crate) const END: u8 = 0;
/// The terminal has sent the signal to the parent's process group: to be passed on only if
/// the command wasn't in it yet.
pub(crate) const FROM_TERMINAL: u8 = 0x80;

/// Time from SIGTERM to SIGKILL when a job ends.
pub(crate) const GRACE: std::time::Duration = std::time::Duration::from_millis(1500);

/// Supervisor to parent, once the command has ended: its status as a shell returns it. One [`GONE`]
/// message follows when no descendant is left.
pub(crate) const STATUS: u8 = 1;
/// Supervisor to parent: no descendant is left. The value is the number of processes that had to be
/// killed.
pub(crate) const GONE: u8 = 2;
/// Supervisor to parent: another party's signal ended the command, or a descendant that
/// had lost its parent. The first [`NAME_LEN`] bytes of its name follow, padded with
/// zeroes; the command has none. If a signal ends a shell's program, the shell returns
/// it as its own status, which counts as the shell's end.
pub(crate) const KILLED: u8 = 3;
/// Supervisor to parent, before `STATUS`: another party's signal ended the command itself,
/// which no shell's status tells.
pub(crate) const SIGNALLED: u8 = 4;
/// Length of a process's name in the kernel (`TASK_COMM_LEN`, proc(5)).
pub(crate) const NAME_LEN: usize = 16;
/// Length of all messages: a kind and a native-endian `i32` (wait status as a shell
/// returns it; number of processes killed).
pub(crate) const MESSAGE_LEN: usize = 5;

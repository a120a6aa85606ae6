//! What a supervisor and its parent send each other.

/// Parent to supervisor, one byte each: a signal number to pass to the
/// command, or [`END`]. End of file means [`END`], too.
pub(crate) const END: u8 = 0;

/// How long descendants have between SIGTERM and SIGKILL when a job ends.
pub(crate) const GRACE: std::time::Duration = std::time::Duration::from_millis(1500);

/// Supervisor to parent: one `STATUS` message when the command has ended, then
/// one `GONE` message when no descendant is left.
pub(crate) const STATUS: u8 = 1;
/// See [`STATUS`].
pub(crate) const GONE: u8 = 2;
/// Supervisor to parent: the command, or a descendant that had lost its parent,
/// was ended by a signal that nobody here sent. The first [`NAME_LEN`] bytes of
/// its name follow, padded with zeroes; the command has none. A shell gives the
/// signal that ended its program as its status, which counts as its own end.
pub(crate) const KILLED: u8 = 3;
/// What the kernel keeps of a process's name (`TASK_COMM_LEN`, proc(5)).
pub(crate) const NAME_LEN: usize = 16;
/// All messages: a kind and a native-endian `i32` (wait status as a shell
/// would give it; number of processes killed).
pub(crate) const MESSAGE_LEN: usize = 5;

//! Open MPI 5's prterun now and then fails at the end of a job, with and without
//! isthmus (docs/mpi.md). Tests repeat such a run. The repeats of all tests are
//! counted, and more than a few fail the test.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};

use crate::{Output, pool};

/// Runs that may be repeated among all tests, which make about 60.
const BUDGET: usize = 5;

static REPEATED: AtomicUsize = AtomicUsize::new(0);

/// Whether prterun itself hung after the program's output, or crashed. It reports a
/// rank that a signal ended, and has that rank's status.
pub(crate) fn failed(output: &Output) -> bool {
    const CRASHED: [i32; 2] = [128 + libc::SIGABRT, 128 + libc::SIGSEGV];
    let hung = output.status == 124 && !output.stdout.is_empty();
    hung || CRASHED.contains(&output.status) && !output.stderr.contains("noticed that process rank")
}

/// Counts a run to be repeated.
///
/// # Errors
/// If there have been too many.
pub(crate) fn repeated(failed: &Output) -> Result<()> {
    let count = REPEATED.fetch_add(1, Ordering::Relaxed) + 1;
    ensure!(count <= BUDGET, "prterun failed in {count} runs\n{}", failed.whole());
    Ok(())
}

/// Has the end of the tests take down their labs and print the count.
pub(crate) fn print_at_exit() {
    static ONCE: Once = Once::new();
    // SAFETY: the function is one that may be called when a process exits.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    pool::clear();
    let count = REPEATED.load(Ordering::Relaxed);
    eprintln!("runs repeated because Open MPI 5's prterun failed: {count} of at most {BUDGET}");
}

//! Has the process keep memory that it has freed and soon needs again.
//!
//! Bulk allocates a buffer for each TLS record, and frees it once the peer has acknowledged it. By
//! default, glibc gives freed memory back as soon as 128 KiB of it are at the end of a heap, and
//! gets it again, page by page, for the next records. That took a quarter of the processor time of
//! an encrypted stream.

/// Size in bytes of the block whose release raises glibc's limits.
const BLOCK: usize = 2 << 20;

/// Has each heap of the process keep up to 4 MiB of freed memory at its end.
///
/// When a block is freed that was too large for a heap, glibc takes larger blocks from heaps from
/// then on, and gives back what is free at a heap's end only beyond twice the block's size
/// (mallopt(3), `M_MMAP_THRESHOLD`). Nothing of the block is written, so it takes no memory. Where
/// an administrator has set the limits (`MALLOC_TRIM_THRESHOLD_`), they stay.
pub(crate) fn keep_freed() {
    // Otherwise the compiler might leave out the allocation.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK)));
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    #[test]
    fn freed_memory_comes_back_without_page_faults() {
        keep_freed();
        // A thread has a heap of its own.
        let faults = std::thread::spawn(|| {
            let once = || drop(std::hint::black_box(vec![vec![1_u8; 16 << 10]; 100]));
            once();
            let faults = || getrusage(UsageWho::RUSAGE_THREAD).unwrap().minor_page_faults();
            let before = faults();
            (0..100).for_each(|_| once());
            faults() - before
        });
        // 40,000 if each page came anew.
        assert!(faults.join().unwrap() < 1_000);
    }
}

//! Many streams over one trunk at once: memory of both ends, and how evenly the
//! streams are served.
//!
//! `cargo run --release --locked -p isthmus-carry --example many_streams -- 10000`
//!
//! Each stream needs four descriptors here. The limit is raised as far as this process
//! may; root may raise it as far as is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::time::Instant;

use common::ends::Both;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

/// Bytes that each stream carries.
const EACH: usize = 64 << 10;
static BYTES: [u8; EACH] = [7; EACH];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count: usize = std::env::args().nth(1).map_or(1_000, |count| count.parse().expect("a number"));
    allow_descriptors(4 * count as u64 + 100);
    let mut both = Both::new().await;
    let before = resident_bytes();
    let begun = Instant::now();
    let mut programs = Vec::with_capacity(count);
    for _ in 0..count {
        programs.push(both.programs().await);
    }
    let opened = begun.elapsed();
    let idle = resident_bytes() - before;

    let begun = Instant::now();
    let mut carried = JoinSet::new();
    for (mut near, mut far) in programs {
        carried.spawn(async move {
            let receiving = async {
                let (mut left, mut buffer) = (EACH, [0; 1 << 10]);
                while left > 0 {
                    left -= far.read_exact(&mut buffer).await?;
                }
                Ok(())
            };
            let (written, read) = tokio::join!(near.write_all(&BYTES), receiving);
            written.and(read).expect("all bytes arrive");
            (begun.elapsed(), near, far)
        });
    }
    let mut programs = carried.join_all().await;
    programs.sort_by_key(|(done, ..)| *done);
    let done = |share: f64| programs[(share * (count - 1) as f64) as usize].0.as_secs_f64();
    let spread = [0.01, 0.1, 0.5, 0.9, 1.0].map(done);
    let busy = resident_bytes() - before;
    let took = begun.elapsed();
    let all = (count * EACH) as f64;
    println!("{count} streams opened in {:.2} s", opened.as_secs_f64());
    println!("memory of both ends and the programs: {:.1} KiB a stream idle", per(idle, count));
    println!("{:.1} KiB a stream after {EACH} bytes over each, all at once", per(busy, count));
    println!("{:.0} MB/s, in {:.2} s", all / took.as_secs_f64() / 1e6, took.as_secs_f64());
    println!("s until 1, 10, 50, 90 and 100 % of the streams were done: {spread:.2?}");
}

fn per(bytes: i64, count: usize) -> f64 {
    bytes as f64 / count as f64 / 1024.0
}

fn allow_descriptors(needed: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if setrlimit(Resource::RLIMIT_NOFILE, needed.max(hard), needed.max(hard)).is_err() {
        assert!(hard >= needed, "{needed} descriptors are needed, and {hard} are allowed");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    }
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: i64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

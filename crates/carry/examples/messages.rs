//! What small messages and streams over a trunk cost the worker threads of both ends.
//!
//! `unshare -n sh -c "ip link set lo up && cargo run --release --locked -p isthmus-carry --example messages"`

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::ends::Both;

/// How long each kind is measured.
const TIME: Duration = Duration::from_millis(1500);
/// Bytes that a stream's sender writes at once.
const CHUNK: usize = 256 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut both = Both::new().await;
    let what: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| what.is_empty() || what.iter().any(|it| it == name);
    for size in [64, 1000, 10_000] {
        if wanted(&size.to_string()) {
            let [near, far] = sockets(both.programs().await);
            let (cost, (messages, took)) = measure(|| ping(near, far, size));
            let each = |seconds: f64| seconds * 1e6 / messages as f64;
            let [user, system, switches] = cost;
            println!(
                "{size} B: {:.2} µs a message (user {:.2}, system {:.2}), {:.2} switches, one way {:.1} µs",
                each(user + system),
                each(user),
                each(system),
                switches / messages as f64,
                each(took.as_secs_f64())
            );
        }
    }
    for streams in [1, 8] {
        if wanted(&format!("s{streams}")) {
            let mut pairs = Vec::new();
            for _ in 0..streams {
                pairs.push(sockets(both.programs().await));
            }
            let (cost, (bytes, took)) = measure(|| stream(pairs));
            let [user, system, _] = cost.map(|seconds| seconds * 1e9 / bytes as f64);
            println!(
                "{streams} streams: {:.4} s/GB (user {user:.4}, system {system:.4}), {:.2} Gb/s",
                user + system,
                bytes as f64 * 8e-9 / took.as_secs_f64()
            );
        }
    }
    std::process::exit(0);
}

fn sockets((near, far): (tokio::net::TcpStream, tokio::net::TcpStream)) -> [TcpStream; 2] {
    [near, far].map(|socket| {
        let socket = socket.into_std().unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    })
}

fn ping(mut near: TcpStream, mut far: TcpStream, size: usize) -> (u64, Duration) {
    let answering = std::thread::spawn(move || {
        let mut message = vec![0; size];
        while far.read_exact(&mut message).is_ok() {
            far.write_all(&message).unwrap();
        }
    });
    let (mut message, mut count, begun) = (vec![7; size], 0, Instant::now());
    while begun.elapsed() < TIME {
        near.write_all(&message).unwrap();
        near.read_exact(&mut message).unwrap();
        count += 2;
    }
    let took = begun.elapsed();
    drop(near);
    answering.join().unwrap();
    (count, took)
}

fn stream(pairs: Vec<[TcpStream; 2]>) -> (u64, Duration) {
    let begun = Instant::now();
    let mut threads = Vec::new();
    for [mut near, mut far] in pairs {
        threads.push(std::thread::spawn(move || {
            let mut arrived = 0;
            let mut chunk = vec![0; CHUNK];
            loop {
                match far.read(&mut chunk).unwrap() {
                    0 => return arrived,
                    count => arrived += count as u64,
                }
            }
        }));
        std::thread::spawn(move || {
            let chunk = vec![7; CHUNK];
            while begun.elapsed() < TIME {
                near.write_all(&chunk).unwrap();
            }
        });
    }
    let bytes = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    (bytes, begun.elapsed())
}

/// Processor seconds of the workers, user and system, and how often they slept.
fn measure<T>(what: impl FnOnce() -> T) -> ([f64; 3], T) {
    let before = workers();
    let done = what();
    let after = workers();
    ([0, 1, 2].map(|at| after[at] - before[at]), done)
}

fn workers() -> [f64; 3] {
    let mut sums = [0.0; 3];
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        if !read("comm").starts_with("carry-") {
            continue;
        }
        let run: f64 = read("schedstat").split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
        let stat = read("stat");
        let fields: Vec<f64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(1)
            .filter_map(|it| it.parse().ok())
            .collect();
        let (user, system) = (fields[10], fields[11]);
        let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        sums[0] += run * 1e-9 * share;
        sums[1] += run * 1e-9 * (1.0 - share);
        let status = read("status");
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sums[2] += switches.and_then(|it| it.trim().parse().ok()).unwrap_or(0.0);
    }
    sums
}

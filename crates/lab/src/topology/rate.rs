//! Rates of local networks: a token bucket at both ends of each node's wire.

use std::time::Duration;

use crate::grid::{BitRate, Slow};

/// How much a node may send at once after a pause, as time at its rate. A timer of the kernel may
/// be late by as much.
const BURST: Duration = Duration::from_micros(250);

/// Least bytes that a node may send at once: two packets of full size.
const LEAST_BURST: u64 = 2 * 1514;

/// How long a packet waits for its turn at most, as time at the rate. The buffers of a switch hold
/// as much.
const QUEUE: Duration = Duration::from_millis(5);

const LEAST_QUEUE: u64 = 256 * 1024;

/// The line for `tc -batch` that limits what an interface sends, in a network that is `slow`.
pub(super) fn limit(interface: &str, rate: BitRate, slow: Slow) -> String {
    let burst = rate.bytes_in(slow.time(BURST)).max(LEAST_BURST);
    let queue = rate.bytes_in(slow.time(QUEUE)).max(LEAST_QUEUE);
    format!("qdisc add dev {interface} root tbf rate {}bit burst {burst} limit {queue}", rate.0)
}

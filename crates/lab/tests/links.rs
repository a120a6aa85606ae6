//! Links do to packets what their shape says: never less, and not much more.

// Helpers outside test functions fail the test as asserts do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{connect, is_root, lab, listen, round_trips};
use isthmus_lab::Lab;

#[test]
fn delays_add_up() {
    if !is_root() {
        return;
    }
    let lab = lab(r#"
        [[host]]
        name = "hub"
        [[site]]
        name = "alpha"
        kind = "open"
        subnet = "203.0.113.0/26"
        link = { delay = "2.5 ms" }
        nodes = [{ name = "n1" }, { name = "n2" }]
        [[site]]
        name = "beta"
        kind = "open"
        subnet = "203.0.113.64/26"
        link = { delay = "2.5 ms", rate = "100 Mbit/s" }
        nodes = [{ name = "n1" }]
    "#);
    for (from, to, milliseconds) in
        [("n1.alpha", "n1.beta", 10), ("n1.alpha", "hub", 5), ("n1.alpha", "n2.alpha", 0)]
    {
        let times = round_trips(lab.machine(from).unwrap(), lab.machine(to).unwrap(), 100);
        let expected = Duration::from_millis(milliseconds);
        assert!(times[0] >= expected, "{from} to {to}: {:?} is too fast", times[0]);
        // The fastest of a hundred, however busy the machine is.
        assert!(times[0] < expected + Duration::from_millis(2), "{from} to {to}: {:?}", times[0]);
        eprintln!("{from} to {to}: least {:?}, median {:?}, most {:?}", times[0], times[50], times[99]);
    }
    let report = lab.emulation().unwrap().unwrap();
    let alpha = report.links.iter().find(|link| link.name == "alpha").unwrap();
    assert!(alpha.up.packets >= 200 && alpha.down.packets >= 200, "{alpha:?}");
    lab.down().unwrap();
}

/// Bytes that cross a link from a site in a while, all of them checked; and
/// the time that took, from the first byte to the last.
fn transfer(lab: &Lab, from: &str, to: &str, length: Duration) -> (u64, Duration) {
    let (from, to) = (lab.machine(from).unwrap(), lab.machine(to).unwrap());
    let (listener, port) = listen(to);
    let mut near = connect(from, to.address(), port, common::SOON).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    // A period that no segment's or buffer's length is a multiple of.
    let pattern: Vec<u8> = (0..251 * 521).map(|i| (i % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            while start.elapsed() < length {
                near.write_all(&pattern).unwrap();
            }
        });
        let mut buffer = vec![0; 1 << 18];
        let mut total = 0u64;
        let mut start = None;
        loop {
            let read = far.read(&mut buffer).unwrap();
            if read == 0 {
                break;
            }
            for (at, byte) in buffer[..read].iter().enumerate() {
                assert_eq!(u64::from(*byte), (total + at as u64) % 251, "byte {}", total + at as u64);
            }
            start.get_or_insert_with(Instant::now);
            total += read as u64;
        }
        (total, start.unwrap().elapsed())
    })
}

#[test]
fn a_rate_is_kept_and_reached() {
    if !is_root() {
        return;
    }
    for (rate, bits_per_second) in [("100 Mbit/s", 100e6), ("1 Gbit/s", 1e9)] {
        let lab = lab(&format!(
            r#"
            [[host]]
            name = "hub"
            [[site]]
            name = "alpha"
            kind = "nat"
            subnet = "192.168.1.0/24"
            link = {{ delay = "2 ms", rate = "{rate}" }}
            nodes = [{{ name = "n1" }}]
        "#
        ));
        let (bytes, time) = transfer(&lab, "n1.alpha", "hub", Duration::from_secs(2));
        let reached = bytes as f64 * 8.0 / time.as_secs_f64();
        eprintln!("{rate}: {:.1} Mbit/s", reached / 1e6);
        // What was on its way when the first byte came counts as well.
        let allowed = bits_per_second * 1.02;
        assert!(reached < allowed, "{rate}: {reached} bit/s is more than the link has");
        // Half, because the machine may be busy with something else.
        assert!(reached > bits_per_second / 2.0, "{rate}: only {reached} bit/s");
        let report = lab.emulation().unwrap().unwrap();
        assert!(report.links[0].up.bytes > bytes, "headers count as well");
        assert_eq!(report.links[0].up.write_errors, 0);
        lab.down().unwrap();
    }
}

#[test]
fn a_small_queue_drops_and_nothing_is_damaged() {
    if !is_root() {
        return;
    }
    let lab = lab(r#"
        [[host]]
        name = "hub"
        [[site]]
        name = "alpha"
        kind = "nat"
        subnet = "192.168.1.0/24"
        link = { delay = "1 ms", rate = "50 Mbit/s", queue = "16 KiB" }
        nodes = [{ name = "n1" }]
    "#);
    let (bytes, _) = transfer(&lab, "n1.alpha", "hub", Duration::from_secs(2));
    assert!(bytes > 1_000_000, "{bytes}");
    let report = lab.emulation().unwrap().unwrap();
    assert!(report.links[0].up.dropped > 0, "{report:?}");
    assert!(report.links[0].up.queue_peak_bytes <= 16 * 1024, "{report:?}");
    lab.down().unwrap();
}

//! Links delay and drop packets by their shape: never less, and not much more.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use isthmus_lab::emulator::DeviceKind;
use isthmus_lab::emulator::control;
use isthmus_lab::emulator::fidelity::What;
use isthmus_lab::emulator::statistics::DirectionReport;
use isthmus_lab::grid::{Delay, Link, LinkShape, Loss, Share};
use isthmus_lab::state::LabDirectory;
use isthmus_lab::{Grid, Lab, Options};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::common::{self, alone, connect, lab, listen, promised, round_trips};

#[test]
fn all_of_it_as_an_ordinary_user() {
    let Some(_alone) = alone() else { return };
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn delays_add_up() {
    let Some(_alone) = alone() else { return };
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
        // The fastest of a hundred.
        let most = expected + promised(Duration::from_millis(2));
        assert!(times[0] < most, "{from} to {to}: {:?}", times[0]);
        eprintln!("{from} to {to}: least {:?}, median {:?}, most {:?}", times[0], times[50], times[99]);
    }
    let report = lab.emulation().unwrap().unwrap();
    let alpha = report.links.iter().find(|link| link.name == "alpha").unwrap();
    assert!(alpha.up.packets >= 200 && alpha.down.packets >= 200, "{alpha:?}");
    lab.down().unwrap();
}

/// Sends from one machine to another for `length`, and checks all bytes that arrive. Returns how
/// many they are, and the time between the first byte and the last.
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
    let Some(_alone) = alone() else { return };
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
        // A fifth, because the machine may be busy with something else; how
        // near it gets is what `make bench-lab` measures.
        assert!(reached > bits_per_second / 5.0, "{rate}: only {reached} bit/s");
        let report = lab.emulation().unwrap().unwrap();
        assert!(report.links[0].up.bytes > bytes, "headers count as well");
        assert_eq!(report.links[0].up.write_errors, 0);
        lab.down().unwrap();
    }
}

#[test]
fn a_small_queue_drops_and_nothing_is_damaged() {
    let Some(_alone) = alone() else { return };
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

/// A lab of two public hosts, `near` and `far`. `link` is that of `near`.
fn pair(link: &str) -> Lab {
    lab(&format!(
        r#"
        seed = 11
        [[host]]
        name = "near"
        link = {{ {link} }}
        [[host]]
        name = "far"
    "#
    ))
}

/// Sends `count` numbered packets from one machine to another, so many per millisecond. Returns the
/// numbers in the order of their arrival, each with the time that the packet took.
fn flood(lab: &Lab, from: &str, to: &str, count: u32, per_millisecond: u32) -> Vec<(u32, Duration)> {
    let (from, to) = (lab.machine(from).unwrap(), lab.machine(to).unwrap());
    let near = from.in_network(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let bind_roomy = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // As much as this user may have.
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20))
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &(32 << 20)))
            .unwrap();
        socket
    };
    let far = to.in_network(bind_roomy).unwrap();
    near.connect((to.address(), far.local_addr().unwrap().port())).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 64];
            for number in 0..count {
                if number % per_millisecond == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                packet[..4].copy_from_slice(&number.to_be_bytes());
                packet[4..12].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_be_bytes());
                near.send(&packet).unwrap();
            }
        });
        let mut arrived = Vec::new();
        let mut packet = [0; 64];
        far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        while let Ok(length) = far.recv(&mut packet) {
            let elapsed = start.elapsed();
            assert_eq!(length, 64);
            let number = u32::from_be_bytes(packet[..4].try_into().unwrap());
            let sent = u64::from_be_bytes(packet[4..12].try_into().unwrap());
            arrived.push((number, elapsed - Duration::from_nanos(sent)));
            if number + 1 == count {
                break;
            }
        }
        arrived
    })
}

fn up_counters(lab: &Lab) -> DirectionReport {
    lab.emulation().unwrap().unwrap().links[0].up.clone()
}

#[test]
fn packets_are_lost_one_by_one_and_in_bursts() {
    let Some(_alone) = alone() else { return };
    const PACKETS: u32 = 20_000;
    for (link, burst) in [("loss = '5 %'", 1.0), ("loss = '5 %', burst = 8", 8.0)] {
        let lab = pair(&format!("up = {{ {link} }}"));
        let arrived = flood(&lab, "near", "far", PACKETS, 20);
        let numbers: Vec<u32> = arrived.iter().map(|(number, _)| *number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "order");
        let gaps: Vec<u32> =
            numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
        let lost: u32 = gaps.iter().sum();
        let share = f64::from(lost) / f64::from(PACKETS);
        let mean = f64::from(lost) / gaps.len() as f64;
        eprintln!("{link}: lost {share}, in bursts of {mean}");
        // Five standard errors of the burstier link are 1.9 %.
        assert!((0.03..0.07).contains(&share), "{link}: lost {share}");
        assert!((burst * 0.7..burst * 1.4).contains(&mean), "{link}: bursts of {mean}");
        let counters = up_counters(&lab);
        // What comes after the last packet that arrived isn't in a gap.
        assert!(counters.lost >= u64::from(lost), "{counters:?}");
        assert_eq!((counters.dropped, counters.packets), (0, PACKETS.into()), "{counters:?}");
        assert_eq!(flood(&lab, "far", "near", 1000, 20).len(), 1000, "the other direction loses nothing");
        lab.down().unwrap();
    }
}

#[test]
fn jitter_spreads_delays_and_keeps_order() {
    let Some(_alone) = alone() else { return };
    let lab = pair("up = { delay = '20 ms', jitter = '10 ms' }");
    let arrived = flood(&lab, "near", "far", 300, 1);
    assert_eq!(arrived.len(), 300);
    assert!(arrived.windows(2).all(|pair| pair[0].0 < pair[1].0), "order");
    let mut times: Vec<Duration> = arrived.iter().map(|(_, time)| *time).collect();
    times.sort();
    assert!(times[0] >= Duration::from_millis(10), "{:?}", times[0]);
    // The earliest of all is early, however late a busy machine makes some.
    assert!(times[0] < Duration::from_millis(20), "{:?}", times[0]);
    let spread = times[times.len() * 9 / 10] - times[times.len() / 10];
    assert!(spread > Duration::from_millis(2), "{spread:?}");
    lab.down().unwrap();
}

#[test]
fn directions_differ() {
    let Some(_alone) = alone() else { return };
    let lab = pair("delay = '1 ms', up = { delay = '30 ms' }, down = { delay = '5 ms' }");
    let fastest = |from, to| flood(&lab, from, to, 50, 1).iter().map(|(_, time)| *time).min().unwrap();
    let (up, down) = (fastest("near", "far"), fastest("far", "near"));
    assert!((30..60).contains(&up.as_millis()), "{up:?}");
    assert!((5..30).contains(&down.as_millis()), "{down:?}");
    lab.down().unwrap();
}

#[test]
fn a_running_link_can_be_changed() {
    let Some(_alone) = alone() else { return };
    let lab = pair("delay = '1 ms'");
    let socket = LabDirectory::of(&lab.record().grid.name).emulator_socket();
    let shapes = lab.record().grid.hosts[0].link;
    let slow = LinkShape { delay: Delay(40_000_000), ..shapes.up };
    let fastest =
        || round_trips(lab.machine("near").unwrap(), lab.machine("far").unwrap(), 20)[0].as_millis();
    assert!(fastest() < 30);
    control::set(&socket, "near", &Link { up: slow, ..shapes }).unwrap();
    assert!((41..80).contains(&fastest()), "{}", fastest());
    let dead = LinkShape { loss: Loss { share: Share(1_000_000_000), burst: 1 }, ..shapes.up };
    control::set(&socket, "near", &Link { up: dead, ..shapes }).unwrap();
    assert_eq!(flood(&lab, "near", "far", 10, 10), []);
    assert_eq!(up_counters(&lab).lost, 10);
    control::set(&socket, "near", &shapes).unwrap();
    assert!(fastest() < 30, "{}", fastest());

    let error = control::set(&socket, "elsewhere", &shapes).unwrap_err().to_string();
    assert!(error.contains("\"elsewhere\"") && error.contains("near"), "{error}");
    lab.down().unwrap();
}

#[test]
fn an_emulator_that_is_held_up_says_so() {
    let Some(_alone) = alone() else { return };
    let lab = pair("delay = '1 ms'");
    let emulator = lab.record().emulator.unwrap();
    let before = lab.emulation().unwrap().unwrap();
    emulator.signal(Signal::SIGSTOP).unwrap();
    // More than any queue before it holds.
    const PACKETS: u32 = 120_000;
    let (near, far) = (lab.machine("near").unwrap(), lab.machine("far").unwrap());
    let socket = near.in_network(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    for _ in 0..PACKETS {
        // Refusals are as good as drops here.
        let _ = socket.send_to(&[0; 64], (far.address(), 9));
    }
    std::thread::sleep(Duration::from_millis(60));
    emulator.signal(Signal::SIGCONT).unwrap();
    let mut report = before.clone();
    common::eventually("the emulator notices", || {
        report = lab.emulation().unwrap().unwrap();
        report.recent_lapses.iter().any(|lapse| matches!(lapse.what, What::Unread { .. }))
    });
    assert!(!report.is_faithful() && !report.is_faithful_since(&before));
    let paused = report.recent_lapses.iter().any(|lapse| matches!(lapse.what, What::Paused { .. }));
    assert!(paused, "{:?}", report.recent_lapses);
    let up = &report.link("near").unwrap().up;
    assert!(up.unread > 0 && up.unread + up.packets <= u64::from(PACKETS), "{up:?}");

    let name = &lab.record().grid.name;
    let log = std::fs::read_to_string(LabDirectory::of(name).log()).unwrap();
    assert!(log.contains("WARNING: the emulation isn't faithful"), "{log}");
    let status = common::program(&["status", "--lab", name]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("WARNING") && status.contains("had no processor"), "{status}");
    lab.down().unwrap();
}

#[test]
fn packet_sockets_carry_links_as_well() {
    let Some(_alone) = alone() else { return };
    let text = r#"
        [[host]]
        name = "hub"
        [[site]]
        name = "alpha"
        kind = "nat"
        subnet = "192.168.1.0/24"
        link = { delay = "5 ms", rate = "200 Mbit/s", loss = "0.1 %" }
        nodes = [{ name = "n1" }]
    "#;
    let grid = Grid::parse(text, "test", &common::unique_name()).unwrap();
    let tun = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    for devices in [DeviceKind::PacketSocket, DeviceKind::Tun] {
        if devices == DeviceKind::Tun && tun.is_err() {
            eprintln!("SKIPPED: this user may not open /dev/net/tun");
            continue;
        }
        let lab = Lab::up_with(&grid, &Options { devices: Some(devices), ..common::options() }).unwrap();
        let times = round_trips(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap(), 20);
        assert!((10..40).contains(&times[0].as_millis()), "{:?}", times[0]);
        let (bytes, _) = transfer(&lab, "n1.alpha", "hub", Duration::from_secs(1));
        assert!(bytes > 1_000_000, "{bytes}");
        let report = lab.emulation().unwrap().unwrap();
        assert_eq!((report.devices, report.links[0].up.write_errors), (devices, 0));
        assert!(report.links[0].up.lost > 0, "{report:?}");
        lab.down().unwrap();
    }
}

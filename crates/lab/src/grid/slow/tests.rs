use proptest::prelude::*;

use super::super::{ByteSize, Loss};
use super::*;
use crate::grid::Share;

fn slow(factor: u32) -> Slow {
    Slow::try_from(factor).unwrap()
}

const GRID: &str = r#"
    return_seconds = 5
    [[host]]
    name = "hub"
    link = { delay = "1 ms" }
    [[site]]
    name = "alpha"
    kind = "nat"
    link = { delay = "5 ms", jitter = "1 ms", rate = "200 Mbit/s", queue = "64 KiB", loss = "1 %", down = { rate = "1 Gbit/s" } }
    lan_rate = "10 Gbit/s"
    rails = [{ name = "fast", subnet = "10.10.0.0/24", rate = "100 Gbit/s" },
             { name = "far", subnet = "10.11.0.0/24", link = { delay = "20 ms" } }]
    nodes = [{ name = "n1" }]
"#;

fn grid() -> Grid {
    Grid::parse(GRID, "test", "test").unwrap()
}

#[test]
fn less_of_it() {
    for (factor, times, want) in [(20, 3, 7), (20, 20, 1), (1, 3, 1), (3, 20, 1), (20, 0, 20)] {
        assert_eq!(slow(factor).less(times), slow(want), "{factor} {times}");
    }
    for (factor, most, want) in [(20, 9, 9), (5, 9, 5), (5, 0, 1)] {
        assert_eq!(slow(factor).at_most(most), slow(want), "{factor} {most}");
    }
}

#[test]
fn times_grow_rates_shrink_and_queues_stay() {
    let slowed = grid().slowed(slow(10)).unwrap();
    let (before, site) = (&grid().sites[0], &slowed.sites[0]);
    let up = site.link.up;
    assert_eq!((up.delay, up.jitter), (Delay(50_000_000), Delay(10_000_000)));
    assert_eq!((up.rate, site.link.down.rate), (Some(BitRate(20_000_000)), Some(BitRate(100_000_000))));
    assert_eq!((up.queue, up.loss), (ByteSize(65_536), Loss { share: Share(10_000_000), burst: 1 }));
    assert_eq!(site.lan_rate, Some(BitRate(1_000_000_000)));
    assert_eq!(site.rails[0].rate, Some(BitRate(10_000_000_000)));
    let far = site.rails[1].uplink.unwrap().link.up;
    assert_eq!((far.delay, far.rate), (Delay(200_000_000), None));
    assert_eq!(slowed.hosts[0].link.up.delay, Delay(10_000_000));
    assert_eq!((slowed.return_seconds.map(NonZeroU16::get), slowed.slow), (Some(50), slow(10)));
    assert_eq!((before.nodes.clone(), before.kind), (site.nodes.clone(), site.kind));
}

#[test]
fn a_queue_that_was_not_given_follows_as_before() {
    let text = "[[host]]\nname = 'a'\nlink = { delay = '25 ms', rate = '1 Gbit/s' }\n[[host]]\nname = 'b'\n";
    let grid = Grid::parse(text, "test", "test").unwrap().slowed(slow(10)).unwrap();
    let link = grid.hosts[0].link;
    assert_eq!(link.up.queue, ByteSize(12_500_000));
    // It holds a round trip still, so a later change of the loss leaves it alone.
    assert_eq!(link.changed(&["loss=1%"]).unwrap().up.queue, ByteSize(12_500_000));
}

#[test]
fn what_makes_no_slow_motion_is_refused() {
    for text in ["0", "1001", "-1", "2.5", "", "ten"] {
        assert!(text.parse::<Slow>().is_err(), "{text}");
    }
    let with = |link: &str| {
        let text =
            format!("[[host]]\nname = 'a'\nlink = {{ {link} }}\n[[host]]\nname = 'b'\nlink = {{ {link} }}\n");
        Grid::parse(&text, "test", "test").unwrap()
    };
    for (link, factor, want) in [
        ("delay = '25 ms'", 9, None),
        ("delay = '25 ms'", 10, Some("takes 1s; the kernel sends a first segment again after 1 s")),
        ("delay = '25 ms'", 10, Some("a factor of at most 9")),
        ("rate = '80 kbit/s'", 10, None),
        ("rate = '80 kbit/s'", 11, Some("11 times slower, a has less than 8 kbit/s")),
        ("delay = '2 s'", 1, None),
    ] {
        let found = with(link).slowed(slow(factor)).err().map(|error| error.to_string());
        match want {
            None => assert_eq!(found, None, "{link}, {factor}"),
            Some(part) => {
                assert!(found.as_ref().is_some_and(|found| found.contains(part)), "{link}: {found:?}")
            }
        }
    }
}

#[test]
fn the_kernel_s_times() {
    for (described, factor, want) in [
        ("200000\n", 10, Some("2000000")),
        ("7200", 1, Some("7200")),
        ("2000000000", 10, Some("2147483647")),
        ("default", 10, None),
    ] {
        assert_eq!(KERNEL_TIMES[0].slowed(described, slow(factor)).as_deref(), want, "{described}");
    }
}

proptest! {
    #[test]
    fn a_link_brings_the_same_number_of_packets_in_a_round_trip(
        delay_us in 1u64..10_000, megabits in 1u64..1_000, queue in 1_500u64..1_000_000, factor in 1u32..=20
    ) {
        let text = format!(
            "[[host]]\nname = 'a'\nlink = {{ delay = '{delay_us} us', rate = '{megabits} Mbit/s', queue = '{queue} B' }}\n\
             [[host]]\nname = 'b'\n"
        );
        let grid = Grid::parse(&text, "test", "test").unwrap();
        let before = grid.hosts[0].link.up;
        let after = grid.slowed(slow(factor)).unwrap().hosts[0].link.up;
        let round_trip = |shape: LinkShape| {
            shape.rate.unwrap().bytes_in(shape.delay.duration() * 2) as f64
        };
        // Rates are whole bits per second.
        prop_assert!((round_trip(after) - round_trip(before)).abs() <= 2.0 + round_trip(before) * 1e-4);
        prop_assert_eq!(after.queue, before.queue);
        prop_assert_eq!(after.delay.0, before.delay.0 * u64::from(factor));
    }

    #[test]
    fn factors_multiply(first in 1u32..=4, second in 1u32..=4) {
        let text = "[[host]]\nname = 'a'\nlink = { delay = '2 ms', rate = '144 Mbit/s' }\n[[host]]\nname = 'b'\n";
        let grid = || Grid::parse(text, "test", "test").unwrap();
        let twice = grid().slowed(slow(first)).unwrap().slowed(slow(second)).unwrap();
        prop_assert_eq!(twice, grid().slowed(slow(first * second)).unwrap());
    }
}

use super::{FULL, parse};
use crate::explain::explain;

#[test]
fn a_profile_in_words() {
    let want = "9 to 65 ranks in 2 groups
time: 2h
order of ranks: may be changed in topologies

masters: 1 rank, at one site
  program: ./master --rays \"1 000\"
  each rank: 1 core, any memory, any architecture, any tags
  any round trip, any rate between its ranks

workers: 8 to 64 ranks, at one site or several
  program: as the command line says
  each rank: 2 cores, 2 GiB of memory, x86_64, the tags big, gpu
  a round trip of 1 ms or less, 1 Gbit/s or more between its ranks

a round trip of 2.5 ms or less, any rate between workers and masters
";
    assert_eq!(explain(&parse(FULL)).to_string(), want);
}

#[test]
fn what_is_left_blank_is_named() {
    let group = |name: &str, ranks| format!("[[group]]\nname = '{name}'\nranks = {ranks}\n");
    let between = "[[between]]\ngroups = ['a', 'b']\nrate = '10 Mbit/s'\n";
    for (text, want) in [
        (
            "reorder = false".to_owned(),
            "no groups: any number of ranks, anywhere\ntime: what the schedulers give by default\n",
        ),
        (group("a", 1), "1 rank in 1 group\n"),
        (group("a", 3), "3 ranks in 1 group\n"),
        (group("a", 1), "order of ranks: stays as the MPI has it\n\na: 1 rank, at one site\n"),
        (group("a", 1) + &group("b", 1), "\n\nany round trip, any rate between groups\n"),
        (
            group("a", 1) + &group("b", 1) + &group("c", 1) + between,
            "\n\nany round trip, 10 Mbit/s or more between a and b\nany round trip, any rate between other groups\n",
        ),
    ] {
        let said = explain(&parse(&text)).to_string();
        assert!(said.contains(want), "{text}: {said}");
    }
    assert!(!explain(&parse(&group("a", 1))).to_string().contains("between groups"));
}

#[test]
fn a_profile_as_json() {
    let explanation = serde_json::to_value(explain(&parse(FULL))).unwrap();
    let want = serde_json::json!({
        "groups": [
            {
                "name": "masters", "least_ranks": 1, "most_ranks": 1,
                "command": ["./master", "--rays", "1 000"], "may_split": false,
                "cores": 1, "memory_bytes": null, "architecture": null, "tags": [],
                "round_trip_us": null, "bytes_per_second": null,
            },
            {
                "name": "workers", "least_ranks": 8, "most_ranks": 64, "command": null, "may_split": true,
                "cores": 2, "memory_bytes": 2_147_483_648_u64, "architecture": "x86_64", "tags": ["big", "gpu"],
                "round_trip_us": 1000, "bytes_per_second": 125_000_000,
            },
        ],
        "between": [{ "groups": ["workers", "masters"], "round_trip_us": 2500, "bytes_per_second": null }],
        "least_ranks": 9, "most_ranks": 65, "time_seconds": 7200, "reorder": true,
    });
    assert_eq!(explanation, want);
}

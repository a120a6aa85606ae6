use isthmus_service::clock::unix_ms;
use isthmus_wire::proto::{self, JobReport, WithoutBroker};
use serde_json::json;

use super::*;

/// Makes another report.
type Change = fn(&mut JobReport);

fn report(digit: &str) -> JobReport {
    let joined = |initiator: &str, acceptor: &str, bytes_known| proto::Joined {
        initiator: initiator.to_owned(),
        acceptor: acceptor.to_owned(),
        route: proto::Route::EndToEnd.into(),
        dial: proto::Dial::Direct.into(),
        encryption: proto::Encryption::Agents.into(),
        connections: 2,
        bytes_sent: 1000,
        bytes_received: 2000,
        bytes_known,
        ..proto::Joined::default()
    };
    JobReport {
        job: digit.repeat(32),
        owner: "ada".to_owned(),
        program: "mpirun".to_owned(),
        nodes: ["n1.alpha", "n1.beta", "n2.alpha"].map(str::to_owned).to_vec(),
        node_count: 3,
        started_unix_ms: unix_ms(),
        joined: vec![joined("n1.alpha", "n1.beta", true), joined("n1.alpha", "n2.alpha", true)],
        joined_count: 2,
        ..JobReport::default()
    }
}

fn note(digit: &str, kind: &str, phase: &str) -> Note {
    let text = json!({
        "id": digit.repeat(32),
        "first_id": format!("{}{}", digit.repeat(31), "0"),
        "kind": kind,
        "program": "./app",
        "phase": phase,
        "since_unix_ms": 0,
        "sites": ["alpha", "beta"],
        "process": { "pid": 17, "started": 1 },
        "machine": "this",
    });
    serde_json::from_value(text).unwrap()
}

fn view(jobs: &[&str], notes: Vec<Note>) -> View {
    let jobs = jobs.iter().map(|digit| report(digit)).collect();
    View::new(&ListReply { jobs, ..ListReply::default() }, notes)
}

/// The lines of a text, with one blank between words.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn jobs_are_shown_in_a_table() {
    let text = view(&["a", "b"], Vec::new()).text(false);
    let lines = lines(&text);
    assert_eq!(lines[0], "job owner program for nodes head connections between sites");
    assert_eq!(lines.len(), 3, "{text}");
    for (line, id) in lines[1..].iter().zip(["aaaaaaaa", "bbbbbbbb"]) {
        assert!(line.starts_with(&format!("{id} ada mpirun ")), "{text}");
        assert!(line.ends_with("s alpha 2, beta 1 n1.alpha 2 3.0 kB"), "{text}");
    }
    assert_eq!(view(&[], Vec::new()).text(false), "no job runs\n");
}

#[test]
fn bytes_are_told_as_far_as_they_are_known() {
    let cases: [(Change, &str); 5] = [
        (|_| {}, "3.0 kB"),
        (|report| report.joined[0].bytes_least = true, "at least 3.0 kB"),
        (|report| report.joined[0].bytes_known = false, "not counted"),
        (|report| report.joined.clear(), "-"),
        (|report| report.joined[0].bytes_sent = u64::MAX, "18446744.1 TB"),
    ];
    for (change, want) in cases {
        let mut report = report("a");
        change(&mut report);
        assert_eq!(Job::new(&report).row().pop().as_deref(), Some(want));
    }
}

#[test]
fn a_job_is_shown_with_its_nodes_and_pairs_of_sites() {
    let shown = view(&["a", "b"], vec![note("c", "run", "waits")]).only(&["b".to_owned()]).unwrap();
    let text = shown.text(true);
    let lines = lines(&text);
    assert!(lines[0].starts_with("job bbbbbbbb: mpirun of ada, 3 nodes from n1.alpha, for "), "{text}");
    for want in [
        format!("id {}", "b".repeat(32)),
        "nodes of alpha: n1.alpha, n2.alpha".to_owned(),
        "nodes of beta: n1.beta".to_owned(),
        "alpha – beta direct, end-to-end, encrypted 2 0.0 ms / 0.0 ms 1.0 kB / 2.0 kB".to_owned(),
    ] {
        assert!(lines.contains(&want), "{want:?} is not in\n{text}");
    }
    assert!(!text.contains("aaaaaaaa") && !text.contains("cccccccc"), "{text}");
    let cut = JobReport { node_count: 5, ..report("a") };
    assert!(Job::new(&cut).details().contains("\n and 2 more nodes\n"), "{}", Job::new(&cut).details());
}

#[test]
fn commands_say_what_they_wait_for() {
    for (kind, phase, want) in [
        ("run", "starts", "job cccccccc: ./app is being started, for "),
        ("run", "waits", "job cccccccc: ./app waits for nodes of alpha, beta, for "),
        ("run", "runs", "job cccccccc: ./app runs; the grid doesn't list it, for "),
        ("alloc", "waits", "allocation cccccccc: ./app waits for nodes of alpha, beta, for "),
        ("alloc", "runs", "allocation cccccccc: ./app has nodes of alpha, beta, for "),
    ] {
        let text = view(&[], vec![note("c", kind, phase)]).text(false);
        assert!(text.starts_with(want) && text.lines().count() == 1, "{text}");
    }
    // A job that runs is listed once.
    let listed = view(&["c"], vec![note("c", "run", "runs")]);
    assert!(listed.commands.is_empty() && listed.jobs.len() == 1);
    let both = view(&["a"], vec![note("c", "run", "waits")]).text(false);
    assert_eq!(lines(&both)[2], "", "{both}");
}

#[test]
fn ids_may_be_cut_short() {
    for (text, want) in [
        ("a", Some("a")),
        ("3F2a", Some("3f2a")),
        ("", None),
        ("3g", None),
        ("-1", None),
        ("a".repeat(33).as_str(), None),
    ] {
        assert_eq!(id(text).ok().as_deref(), want, "{text}");
    }
    let ids = [vec!["ab12"], vec!["ab34", "cd56"], vec!["ef"]];
    for (beginning, want) in [("ab1", Some(0)), ("cd", Some(1)), ("ef", Some(2)), ("0", None)] {
        assert_eq!(find(beginning, &ids).unwrap(), want, "{beginning}");
    }
    let error = find("ab", &ids).unwrap_err().to_string();
    assert_eq!(error, "several ids begin with ab, so give more digits: ab12, ab34");
    // Both ids of one thing begin alike.
    assert_eq!(find("a", &[vec!["ab", "ac"]]).unwrap(), Some(0));
}

#[test]
fn what_is_named_must_be_there() {
    let view = || view(&["a"], vec![note("c", "run", "waits")]);
    let only = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        view().only(&words).map(|view| (view.jobs.len(), view.commands.len()))
    };
    let first_id = "c".repeat(31) + "0";
    for (words, want) in [
        (vec![], (1, 1)),
        (vec!["a"], (1, 0)),
        (vec!["cc"], (0, 1)),
        (vec!["a", "c", "aa"], (1, 1)),
        (vec![first_id.as_str()], (0, 1)),
    ] {
        assert_eq!(only(&words).unwrap(), want, "{words:?}");
    }
    let error = only(&["a", "d"]).unwrap_err().to_string();
    assert!(error.contains("begins with d; `isthmus jobs` lists them"), "{error}");
}

#[test]
fn names_in_json_stay() {
    let without_broker =
        Some(WithoutBroker { gateway: "gateway.alpha".to_owned(), away_ms: 1, told_ms: None });
    let reply = ListReply { jobs: vec![report("a")], without_broker, ..ListReply::default() };
    let json = serde_json::to_value(View::new(&reply, vec![note("c", "alloc", "runs")])).unwrap();
    for pointer in [
        "/jobs/0/id",
        "/jobs/0/nodes/2",
        "/jobs/0/joined/0/bytes",
        "/jobs/0/started_unix_ms",
        "/commands/0/id",
        "/commands/0/program",
        "/commands/0/since_unix_ms",
        "/commands/0/sites/1",
        "/commands/0/pid",
        "/without_broker/gateway",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer} is missing in {json:#}");
    }
    let command = &json["commands"][0];
    assert_eq!((&command["command"], &command["phase"]), (&json!("alloc"), &json!("runs")));
}

//! Captures hold what passed, in a form that others can read; presets come
//! up; pictures and completions are of the lab that runs.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use isthmus_lab::{Lab, Machine};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{self, PROGRAM, lab, labs_run_here, program, unique_name};

const GRID: &str = r#"
    [[host]]
    name = "hub"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    outside = "198.51.100.21"
    link = { delay = "1 ms" }
    nodes = [{ name = "n1" }]
"#;

/// Starts a capture, and returns once it has begun.
fn capturing(lab: &Lab, arguments: &[&str]) -> Child {
    let mut command = program(&["capture", "--lab", lab.name()]);
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut error = BufReader::new(child.stderr.take().unwrap());
    error.read_line(&mut line).unwrap();
    assert!(line.starts_with("capturing at "), "{line}");
    std::thread::spawn(move || std::io::copy(&mut error, &mut std::io::sink()));
    child
}

/// Sends `count` numbered UDP packets of 100 bytes to port 7 of a machine.
fn send(machine: Machine<'_>, to: Machine<'_>, count: u8) {
    let socket = machine.in_network(|| UdpSocket::bind("0.0.0.0:4321")).unwrap().unwrap();
    for number in 0..count {
        socket.send_to(&[number; 100], (to.address(), 7)).unwrap();
    }
}

type Packet = (Duration, Vec<u8>);

/// The packets of a capture from the IP header on, each with its time since 1970.
fn packets(capture: &[u8]) -> Vec<Packet> {
    let (packets, length) = whole_packets(capture);
    assert_eq!(length, capture.len());
    packets
}

/// The packets that are whole in the beginning of a capture, each with its time since 1970. Also
/// returns how many bytes of the capture they are.
fn whole_packets(capture: &[u8]) -> (Vec<Packet>, usize) {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    // Times in nanoseconds, version 2.4.
    assert_eq!((word(0), word(4)), (0xa1b2_3c4d, 0x0004_0002));
    let skip = match word(20) {
        1 => 14,  // Ethernet
        101 => 0, // IP
        other => panic!("link type {other}"),
    };
    let (mut packets, mut at) = (Vec::new(), 24);
    while capture.len() >= at + 16 && capture.len() - at - 16 >= word(at + 8) as usize {
        let length = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, length);
        let time = Duration::new(word(at).into(), word(at + 4));
        packets.push((time, capture[at + 16 + skip..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    (packets, at)
}

/// The numbers of the test's UDP packets from a source, each with its packet's time since 1970.
fn payloads(packets: &[Packet], source: [u8; 4]) -> impl Iterator<Item = (Duration, u8)> {
    let such = move |ip: &[u8]| ip.len() == 128 && ip[9] == 17 && ip[12..16] == source;
    packets.iter().filter(move |(_, ip)| such(ip)).map(|(time, ip)| (*time, ip[28]))
}

/// Reads a capture that goes on, until it ends or has `count` of the test's packets from a source.
fn read_until(out: &mut ChildStdout, count: usize, source: [u8; 4]) -> Vec<u8> {
    let (mut capture, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = out.read(&mut buffer).unwrap();
        capture.extend_from_slice(&buffer[..read]);
        let enough = capture.len() >= 24 && payloads(&whole_packets(&capture).0, source).count() >= count;
        if enough || read == 0 {
            return capture;
        }
    }
}

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn what_passes_a_link_or_node_is_captured_at_either_end() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let (node, hub) = (lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap());
    let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // Behind the NAT the node's own address, before it the site's.
    let places = [
        (["n1.alpha"].as_slice(), [192, 168, 1, 2]),
        (&["n1.alpha", "--far"], [192, 168, 1, 2]),
        (&["alpha"], [198, 51, 100, 21]),
        (&["alpha", "--far"], [198, 51, 100, 21]),
        (&["hub"], [198, 51, 100, 21]),
    ];
    // The captures would end by themselves if packets were missing.
    let capture = |place: &[&str]| capturing(&lab, &[place, &["--for", "60s"]].concat());
    let children: Vec<Child> = places.iter().map(|(place, _)| capture(place)).collect();
    send(node, hub, 5);
    for (mut child, (place, source)) in children.into_iter().zip(places) {
        let mut out = child.stdout.take().unwrap();
        let mut captured = read_until(&mut out, 5, source);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        out.read_to_end(&mut captured).unwrap();
        assert!(child.wait().unwrap().success());
        let packets = packets(&captured);
        let (times, payloads): (Vec<_>, Vec<u8>) = payloads(&packets, source).unzip();
        assert_eq!(payloads, [0, 1, 2, 3, 4], "{place:?}");
        let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(times.iter().all(|time| *time >= start && *time <= end), "{place:?}");
    }
    lab.down().unwrap();
}

#[test]
fn a_capture_ends_by_count_and_time_and_is_for_programs() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let (node, hub) = (lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("some.pcap");
    let mut child = capturing(&lab, &["hub", "--count", "3", "--out", file.to_str().unwrap()]);
    send(node, hub, 5);
    assert!(child.wait().unwrap().success());
    assert_eq!(packets(&std::fs::read(&file).unwrap()).len(), 3);
    let output = program(&["capture", "--lab", lab.name(), "hub", "--for", "1ms"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("captured, 0 dropped by the kernel"));
    let output = program(&["capture", "--lab", lab.name(), "router.alpha"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("stands for 2 links, capture one of them: alpha")
    );
    // A reader that leaves is no error.
    let mut child = capturing(&lab, &["hub"]);
    drop(child.stdout.take());
    send(node, hub, 1);
    assert!(child.wait().unwrap().success());
    lab.down().unwrap();
}

/// Ends the lab of this name, however the test ends.
struct Ended(String);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = program(&["down", "--lab", &self.0]).output();
    }
}

#[test]
fn a_preset_comes_up_and_is_drawn_as_it_is() {
    if !labs_run_here() {
        return;
    }
    let lab = Ended(unique_name());
    let run = |arguments: &[&str]| {
        let output = program(arguments).args(["--lab", &lab.0]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["up", "--preset", "two-nats", "--no-services"]);
    run(&["set", "alpha", "delay=33ms"]);
    run(&["cut", "beta"]);
    let picture = run(&["graph"]);
    assert!(picture.contains("33 ms") && picture.contains("stroke-dasharray"), "{picture}");
    run(&["down"]);
}

#[test]
fn presets_and_pictures_need_no_root() {
    let run = |arguments: &[&str]| program(arguments).output().unwrap();
    let list = String::from_utf8(run(&["presets"]).stdout).unwrap();
    assert!(
        list.lines().any(|line| line.starts_with("two-nats ") && line.contains("same private addresses"))
    );
    let file = run(&["presets", "--show", "lossy-wan"]).stdout;
    let path = tempfile::Builder::new().prefix("grid").suffix(".toml").tempfile().unwrap();
    std::fs::write(path.path(), &file).unwrap();
    for arguments in [&["graph", path.path().to_str().unwrap()][..], &["graph", "--preset", "lossy-wan"]] {
        let picture = run(arguments);
        assert!(picture.status.success(), "{}", String::from_utf8_lossy(&picture.stderr));
        assert!(String::from_utf8(picture.stdout).unwrap().starts_with("<svg"));
    }
    for (arguments, code, message) in [
        (&["up"][..], 1, "give a grid file, or --preset NAME"),
        (&["up", "grid.toml", "--preset", "two-nats"], 2, "cannot be used with"),
        (&["up", "--preset", "two-nuts"], 1, "no preset \"two-nuts\"; there are: two-nats"),
        (&["graph", "grid.toml", "--lab", "some"], 2, "cannot be used with"),
        (&["graph", "--lab", "never-there"], 1, "never-there"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}

/// What a shell would offer to complete the last word with.
fn completions(words: &[&str]) -> Vec<String> {
    let last = (words.len() - 1).to_string();
    let output = Command::new(PROGRAM)
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", last)
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "false")
        .env("_CLAP_IFS", "\n")
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn values_are_completed() {
    assert_eq!(completions(&["isthmus-lab", "lab", "presets", "--show", "two-n"]), ["two-nats"]);
    assert_eq!(completions(&["isthmus-lab", "lab", "capt"]), ["capture"]);
    let options_alone = completions(&["isthmus-lab", "lab", "cut", "--lab", "never-there", ""]);
    assert!(options_alone.iter().all(|word| word.starts_with("--")), "{options_alone:?}");
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let name = lab.name();
    let complete = |words: &[&str]| completions(&[&["isthmus-lab", "lab"], words].concat());
    assert_eq!(complete(&["status", "--lab", name]), [name]);
    assert_eq!(complete(&["cut", "--lab", name, "al"]), ["alpha"]);
    assert_eq!(complete(&["cut", "--lab", name, "n"]), ["n1.alpha"]);
    assert_eq!(complete(&["exec", "--lab", name, "rou"]), ["router.alpha"]);
    assert_eq!(complete(&["set", "--lab", name, "alpha", "up.r"]), ["up.rate="]);
    assert_eq!(complete(&["nat", "expire", "--lab", name, "a"]), ["alpha"]);
    assert_eq!(complete(&["heal", "--lab", name, "al"]), [""; 0]);
    lab.cut("alpha").unwrap();
    assert_eq!(complete(&["heal", "--lab", name, "al"]), ["alpha"]);
    lab.down().unwrap();
}

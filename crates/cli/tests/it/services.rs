//! The commands that make and run a grid, as a person types them.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::playground::{Playground, SOON, read_to_string};

#[test]
fn a_grid_from_nothing_to_its_end() {
    let playground = Playground::new();
    playground.init();
    let broker = playground.start("broker", "broker");

    playground.good("grid invite --state broker --role gateway --site alpha --out gateway.token");
    let mode = std::fs::metadata(playground.path("gateway.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let joined = playground.good("join --state gateway --token gateway.token");
    assert!(joined.starts_with("Joined grid demo as gateway.alpha;"), "{joined}");
    playground.bad("join --state other --token gateway.token", "used before");
    std::fs::write(playground.path("gateway/isthmus.toml"), "[gateway]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let gateway = playground.start("gateway", "gateway");

    let token = playground.good("grid invite --state broker --role relay --name r1");
    std::fs::write(playground.path("relay.token"), token).unwrap();
    playground.good("join --state relay --token relay.token");
    std::fs::write(playground.path("relay/isthmus.toml"), "[relay]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let relay = playground.start("relay", "relay");

    // Both report that they are ready before they have found the broker.
    let started = Instant::now();
    let status = loop {
        let json = playground.good("status --state broker --json");
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        if (status["sites"][0]["up"] == true && status["relays"][0]["up"] == true) || started.elapsed() > SOON
        {
            break status;
        }
    };
    assert_eq!(status["grid"], "demo");
    assert_eq!((&status["sites"][0]["name"], &status["sites"][0]["up"]), (&"alpha".into(), &true.into()));
    assert_eq!((&status["relays"][0]["name"], &status["relays"][0]["up"]), (&"r1".into(), &true.into()));
    for asking in ["broker", "broker/admin", "gateway"] {
        let text = playground.good(&format!("status --state {asking}"));
        assert!(text.starts_with("grid demo: 1 site, 0 nodes up, 1 relay, 0 jobs\n"), "{asking}: {text}");
    }
    playground.bad("status --state relay", "relay r1 may not call Registry/List at the broker");
    // Another user's link is not followed. Only root can give one away.
    std::fs::write(playground.path("kept"), "kept").unwrap();
    std::os::unix::fs::symlink("kept", playground.path("grid.svg")).unwrap();
    if std::os::unix::fs::lchown(playground.path("grid.svg"), Some(65534), None).is_ok() {
        playground.bad("status --state broker --svg grid.svg", "it is a symbolic link of user id 65534");
    }
    assert_eq!(read_to_string(&playground.path("kept")), "kept");
    // What the services have made in their directories is no other user's to read, but for
    // certificates and the grid's address.
    for entry in std::fs::read_dir(playground.path("broker")).unwrap() {
        let (entry, public) = (entry.unwrap(), ["pem", "toml"]);
        let mode = entry.metadata().unwrap().permissions().mode();
        let is_public =
            entry.path().extension().is_some_and(|end| public.iter().any(|public| end == *public));
        assert!(is_public || mode & 0o077 == 0, "{}: {mode:o}", entry.path().display());
    }
    let audit = read_to_string(&playground.path("broker/audit.log"));
    for line in [
        "invite done identity=\"user id ",
        "join done identity=\"relay r1\"",
        "call refused identity=\"relay r1\"",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }

    relay.stop(Signal::SIGTERM);
    gateway.stop(Signal::SIGINT);
    broker.stop(Signal::SIGTERM);
    playground.bad("status --state broker", "cannot reach broker at 127.0.0.1:");
}

#[test]
fn mistakes_are_explained() {
    let playground = Playground::new();
    playground.bad("broker --state nowhere", "make one with `isthmus grid init");
    playground.bad("gateway --state nowhere", "run `isthmus join");
    playground.bad("status --state nowhere", "run `isthmus join");
    playground.bad("grid invite --state nowhere --role relay", "make one with `isthmus grid init");
    playground.bad("grid init --state broker --name demo --address here:none", "expected HOST:PORT");
    playground.bad("join --state new --token missing", "cannot read missing");
    playground.bad("join --state new", "not a join token");
    assert!(!playground.path("new").exists(), "nothing was made");

    playground.init();
    playground.bad("grid init --state broker --name other --address a:1", "holds the grid \"demo\" already");
    playground.bad("grid invite --state broker --role agent --owner anna", "needs a site");
    playground.bad("grid invite --state broker --role agent --owner anna --site relay", "reserved");
    for (service, article) in [("gateway", "a"), ("agent", "an"), ("relay", "a")] {
        let want = format!("broker holds the identity of broker, not of {article} {service}");
        playground.bad(&format!("{service} --state broker"), &want);
    }
    for (file, token) in [("a.token", "--role agent --site alpha --owner anna"), ("r.token", "--role relay")]
    {
        playground.good(&format!("grid invite --state broker {token} --out {file}"));
    }
    playground.bad("join --state agent --token a.token --name n1", "--via HOST");
    playground.bad("join --state broker --token r.token --name r1", "holds the grid itself");
    playground.bad("join --state r --token r.token --name r1", "cannot reach broker at 127.0.0.1:");

    std::fs::write(playground.path("broker/isthmus.toml"), "[broker]\nlissen = \"0.0.0.0:1\"\n").unwrap();
    playground.bad_config();
    let usage = playground.isthmus("grid invite --state broker --role king");
    assert_eq!(usage.status.code(), Some(2), "as clap has it for wrong usage");
    let usage = playground.isthmus("grid invite --state broker --role agent --site alpha");
    assert_eq!(usage.status.code(), Some(2), "an owner is not guessed");
    assert!(String::from_utf8_lossy(&usage.stderr).contains("--owner <USER>"), "{usage:?}");
}

impl Playground {
    fn bad_config(&self) {
        let output = self.isthmus("broker --state broker");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(message.contains("isthmus.toml") && message.contains("unknown field `lissen`"), "{message}");
    }
}

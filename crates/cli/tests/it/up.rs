//! `isthmus up` and `isthmus down`, with the real binary, on this machine alone.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use isthmus_wire::reflect;

use crate::playground::{Playground, read_to_string};

/// Within this time a service has noticed what became of others, on a busy machine.
const NOTICED: Duration = Duration::from_secs(60);

/// A grid, and the services that `isthmus up` has started in it.
struct Grid {
    playground: Playground,
    started: Vec<&'static str>,
}

impl Grid {
    /// A grid whose broker's relay has this port.
    fn new(relay_port: u16) -> Self {
        let playground = Playground::new();
        playground.init();
        let path = playground.path("broker/isthmus.toml");
        let relay =
            format!("[relay]\nlisten = \"127.0.0.1:{relay_port}\"\naddress = \"127.0.0.1:{relay_port}\"\n");
        std::fs::write(&path, read_to_string(&path) + &relay).unwrap();
        Self { playground, started: Vec::new() }
    }

    /// Runs `isthmus up --state STATE WORDS`, which must succeed. Returns what it prints.
    fn up(&mut self, state: &'static str, words: &str) -> String {
        self.started.insert(0, state);
        self.playground.good(&format!("up --state {state} {words}"))
    }

    /// Runs `isthmus up --state STATE WORDS`, which must fail with `want`. Returns what it prints.
    fn no_up(&mut self, state: &'static str, words: &str, want: &str) -> String {
        self.started.insert(0, state);
        let output = self.playground.isthmus(&format!("up --state {state} {words}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(want), "{state} {words}: {said}");
        said
    }

    /// Runs `isthmus up --state STATE` until it prints `want`, and returns what it prints. Services
    /// notice a little later what has become of others.
    fn until(&self, state: &str, want: &str) -> String {
        let mut said = String::new();
        let deadline = Instant::now() + NOTICED;
        while Instant::now() < deadline {
            let output = self.playground.isthmus(&format!("up --state {state}"));
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            if said.contains(want) && output.status.code() == Some(1) {
                return said;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{state} doesn't say {want:?}: {said}")
    }

    /// Makes a front-end's state directory, whose gateway takes any port.
    fn front_end(&self, state: &str) {
        std::fs::create_dir(self.playground.path(state)).unwrap();
        let listen = "[gateway]\nlisten = \"127.0.0.1:0\"\n";
        std::fs::write(self.playground.path(&format!("{state}/isthmus.toml")), listen).unwrap();
    }

    fn invite(&self, file: &str, site: &str) {
        self.invite_with(file, site, "ada", "--gateways 2");
    }

    fn invite_with(&self, file: &str, site: &str, owner: &str, options: &str) {
        let to = format!("--site {site} --owner {owner} --nodes 2 {options} --out {file}");
        self.playground.good(&format!("grid invite --state broker {to}"));
    }

    fn pid(&self, note: &str) -> String {
        read_to_string(&self.playground.path(note)).split_whitespace().next().unwrap().to_owned()
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        for state in &self.started {
            self.playground.isthmus(&format!("down --state {state}"));
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
}

#[test]
fn a_broker_says_whether_its_relay_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut grid = Grid::new(taken.local_addr().unwrap().port());
    for already in ["runs;", "runs already;"] {
        let said = grid.up("broker", "");
        let (first, then) = said.split_once('\n').unwrap();
        assert!(first.starts_with(&format!("The broker of grid demo (without a relay) {already}")), "{said}");
        for part in ["cannot listen on 127.0.0.1:", "broker/isthmus.toml", "[relay] listen"] {
            assert!(then.contains(part), "{part}: {said}");
        }
    }
    grid.playground.good("down --state broker");
    drop(taken);
    let said = grid.up("broker", "");
    assert!(said.starts_with("The broker of grid demo, with a relay, runs; its log is /"), "{said}");
}

/// The relay has joined at the broker's former port.
#[test]
fn the_relay_follows_its_broker_to_another_port() {
    let relay_port = free_port();
    let mut grid = Grid::new(relay_port);
    assert!(grid.up("broker", "").starts_with("The broker of grid demo, with a relay, runs;"));
    grid.playground.good("down --state broker");
    let port = free_port();
    let config = format!(
        "[broker]\nlisten = \"127.0.0.1:{port}\"\n[relay]\nlisten = \"127.0.0.1:{relay_port}\"\n\
         address = \"127.0.0.1:{relay_port}\"\n"
    );
    std::fs::write(grid.playground.path("broker/isthmus.toml"), config).unwrap();
    let said = grid.up("broker", "");
    assert!(said.starts_with("The broker of grid demo, with a relay, runs;"), "{said}");
}

/// With one port, sites need let out no other. A relay that is a service of its own can't have it.
#[test]
fn broker_and_relay_share_one_port() {
    let mut grid = Grid::new(free_port());
    let at = format!("127.0.0.1:{}", grid.playground.broker_port);
    let relay = format!("[relay]\nlisten = \"{at}\"\n");
    let config = format!("[broker]\nlisten = \"{at}\"\n{relay}");
    std::fs::write(grid.playground.path("broker/isthmus.toml"), config).unwrap();
    let said = grid.up("broker", "");
    assert!(said.starts_with("The broker of grid demo, with a relay, runs;"), "{said}");

    let status = grid.playground.good("status --state broker/admin --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["relays"][0]["address"], &status["relays"][0]["up"]),
        (&at.clone().into(), &true.into())
    );
    let mut asking = TcpStream::connect(&at).unwrap();
    asking.set_read_timeout(Some(NOTICED)).unwrap();
    asking.write_all(&reflect::encode_question(None)).unwrap();
    let mut answer = [0; reflect::ANSWER_LEN];
    asking.read_exact(&mut answer).unwrap();
    assert_eq!(reflect::decode_answer(&answer), Ok(asking.local_addr().unwrap()));

    grid.playground.good("grid invite --state broker --role relay --name other --out other.token");
    std::fs::create_dir(grid.playground.path("other")).unwrap();
    std::fs::write(grid.playground.path("other/isthmus.toml"), relay).unwrap();
    let said = grid.no_up("other", "--token other.token", &format!("cannot listen on {at}"));
    assert!(said.contains("isthmus broker --with-relay"), "{said}");
    let again = grid.playground.isthmus("broker --state broker");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("or a relay as a service of its own"), "{said}");
}

#[test]
fn an_address_that_does_not_lead_to_the_broker_is_doubted() {
    let mut grid = Grid::new(free_port());
    let init = "grid init --state wrong --name wrong --address nosuch.invalid";
    let made = grid.playground.isthmus(init);
    let warned = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && warned.contains("finds no address of nosuch.invalid"), "{warned}");

    grid.started.push("broker");
    let up = |grid: &Grid| {
        let output = grid.playground.isthmus("up --state broker");
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{warned}");
        warned
    };
    let warned = up(&grid);
    assert!(warned.is_empty(), "{warned}");
    let nobody = free_port();
    let file = grid.playground.path("broker/grid.toml");
    let text = read_to_string(&file).replace(&grid.playground.broker_port.to_string(), &nobody.to_string());
    std::fs::write(&file, text).unwrap();
    let warned = up(&grid);
    for part in [&format!("doesn't reach its broker at 127.0.0.1:{nobody}"), "broker/grid.toml"] {
        assert!(warned.contains(part), "no {part:?} in {warned}");
    }
}

#[test]
fn what_is_so_is_said() {
    let mut grid = Grid::new(free_port());
    grid.up("broker", "");
    for (file, site) in [("alpha.token", "alpha"), ("again.token", "alpha"), ("beta.token", "beta")] {
        grid.invite(file, site);
    }
    grid.invite_with("nodes.token", "alpha", "bob", "");
    for state in ["gateway", "node"] {
        grid.front_end(state);
    }
    grid.no_up("gateway", "--token alpha.token --name n1", "--via FRONT-END");
    // Another user's, for nodes only.
    let no_gateway = "the join token is for nodes of site alpha, and makes no gateway";
    grid.no_up("gateway", "--token nodes.token", no_gateway);
    grid.no_up("gateway", "--token nodes.token --gateway login2", no_gateway);
    let said = grid.up("gateway", "--token alpha.token");
    assert!(said.starts_with("gateway.alpha runs;"), "{said}");
    assert!(grid.up("gateway", "--token alpha.token").starts_with("gateway.alpha runs already;"));
    let pid = grid.pid("gateway/gateway.pid");
    signal("STOP", &pid);
    grid.until(
        "gateway",
        &format!("gateway.alpha is stopped (process {pid}, as by SIGSTOP): kill -CONT {pid}"),
    );
    signal("CONT", &pid);

    let way =
        grid.no_up("node", "--token alpha.token", "site alpha has a gateway that is attached, gateway.alpha");
    assert!(way.contains("--via") && way.contains("--gateway NAME") && way.lines().count() == 1, "{way}");
    let said = grid.up("node", "--token alpha.token --gateway login2");
    assert!(said.starts_with("gateway login2.alpha runs;"), "{said}");
    grid.no_up(
        "node",
        "--token beta.token",
        "belongs to gateway login2.alpha, and the token is for another member",
    );
    let said = grid.no_up("node", "--gateway login3", "belongs to gateway login2.alpha, not to login3");
    assert!(said.contains("isthmus join --force --token FILE") && said.contains("--state DIR"), "{said}");
    grid.no_up("broker", "--token beta.token", "holds the grid demo itself");
    grid.playground.good("down --state node");

    // The token is closed with its bearer.
    let said = grid.playground.good("grid revoke --state broker/admin gateway.alpha");
    assert!(said.contains("gateway.alpha") && said.contains("admits nobody any more"), "{said}");
    let told = grid.until("gateway", "gateway.alpha is revoked");
    assert!(told.contains("--token FILE"), "{told}");
    grid.no_up("gateway", "--token alpha.token", "has closed the join token");
    let said = grid.up("gateway", "--token again.token");
    assert!(said.starts_with("gateway.alpha runs;"), "{said}");

    grid.playground.good("down --state broker");
    let said = grid.until("gateway", "gateway.alpha runs, but is not attached to the broker at 127.0.0.1:");
    assert!(said.contains(" for ") && said.contains("isthmus down"), "{said}");
}

#[test]
fn a_service_keeps_nothing_of_who_started_it() {
    let mut grid = Grid::new(free_port());
    grid.started.push("broker");
    let long = grid.playground.path(&"x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    // `sh` opens a descriptor that its children inherit.
    let words = format!("exec 7</dev/null; exec {} up --state broker", env!("CARGO_BIN_EXE_isthmus"));
    let mut command = Command::new("sh");
    command.args(["-c", &words]).current_dir(grid.playground.path(".")).env_remove("ISTHMUS_STATE");
    command.env("NOTIFY_SOCKET", "/nonexistent").env("LISTEN_FDS", "1").env("TMPDIR", &long);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let process = PathBuf::from("/proc").join(grid.pid("broker/broker.pid"));
    assert_eq!(std::fs::read_link(process.join("cwd")).unwrap(), PathBuf::from("/"));
    let environment = std::fs::read(process.join("environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("NOTIFY_SOCKET") && !environment.contains("LISTEN_FDS"), "{environment}");
    let inherited = std::fs::read_dir(process.join("fd")).unwrap().filter_map(|entry| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        (target.as_os_str() == "/dev/null").then_some(())
    });
    assert_eq!(inherited.count(), 1, "its standard input");
}

/// A shell script that does what a user's systemd does for one unit.
const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$1 $2 $3" = "--user --no-pager --no-ask-password" ] || exit 9
shift 3
echo "$*" >> "$FAKE/calls"
unit() { echo "$FAKE/home/.config/systemd/user/$1"; }
end() {
    [ -f "$FAKE/pid" ] || return 0
    pid=$(cat "$FAKE/pid"); kill "$pid"; rm "$FAKE/pid"
    while [ -e "/proc/$pid/exe" ]; do sleep 0.1; done
}
case $1 in
show-environment) [ -z "$NO_SYSTEMD" ] || { echo "Failed to connect to bus" >&2; exit 1; }; echo "HOME=$FAKE/home" ;;
daemon-reload) ;;
enable) [ -f "$(unit "$2")" ] ;;
start)
    log=$(sed -n 's/^StandardOutput=append://p' "$(unit "$2")")
    from=$(wc -l < "$log")
    eval "setsid $(sed -n 's/^ExecStart=//p' "$(unit "$2")") >> '$log' 2>&1 < /dev/null &"
    echo $! > "$FAKE/pid"
    for _ in $(seq 300); do
        tail -n +$((from + 1)) "$log" | grep -q ' ready$' && exit 0
        kill -0 "$(cat "$FAKE/pid")" || exit 1
        sleep 0.1
    done
    exit 1 ;;
show)
    if [ -f "$FAKE/pid" ]; then echo ActiveState=active; echo "MainPID=$(cat "$FAKE/pid")"
    else echo ActiveState=inactive; echo MainPID=0; fi ;;
stop) end ;;
disable) [ "$2" = --now ] && end ;;
*) exit 8 ;;
esac
"#;

#[test]
fn a_user_s_systemd_runs_a_service() {
    let mut grid = Grid::new(free_port());
    let bin = grid.playground.path("bin");
    std::fs::create_dir(&bin).unwrap();
    // Not from the file as it was written: while another test forks, its child has that open,
    // and nobody can run it.
    std::fs::write(bin.join("text"), SYSTEMCTL).unwrap();
    let install = ["-m", "755", "text", "systemctl"];
    assert!(Command::new("install").args(install).current_dir(&bin).status().unwrap().success());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let place = grid.playground.path(".");
    let run = |words: &str, no_systemd: &str| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
        command.current_dir(&place).args(words.split_whitespace());
        command.env("PATH", &path).env("FAKE", &place).env("NO_SYSTEMD", no_systemd);
        command.env_remove("ISTHMUS_STATE").stdin(Stdio::null()).output().unwrap()
    };
    let said = |output: Output| {
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let none = said(run("up --state broker --user-unit", "none"));
    assert!(
        none.contains("no systemd of this user answers") && none.contains("Failed to connect to bus"),
        "{none}"
    );
    assert!(!grid.playground.path("broker/log").exists(), "nothing was started");

    let first = said(run("up --state broker --user-unit", ""));
    assert!(first.contains("with a relay, runs as isthmus-broker-"), "{first}");
    let again = said(run("up --state broker", ""));
    assert!(again.contains("with a relay, runs already as isthmus-broker-"), "{again}");
    let units = grid.playground.path("home/.config/systemd/user");
    assert_eq!(std::fs::read_dir(&units).unwrap().count(), 1);
    let down = said(run("down --state broker", ""));
    assert_eq!(down, "The broker stopped.\n");
    assert_eq!(std::fs::read_dir(&units).unwrap().count(), 0);
    let calls = read_to_string(&grid.playground.path("calls"));
    assert!(
        calls.contains("\nenable isthmus-broker-") && calls.contains("\ndisable --now isthmus-broker-"),
        "{calls}"
    );

    // A process of its own is not replaced in silence.
    grid.up("broker", "");
    let refused = said(run("up --state broker --user-unit", ""));
    assert!(refused.contains("runs as a process of its own; isthmus down first"), "{refused}");
}

//! Conformance: each behaviour of crates/shim/tests/same, run without isthmus
//! between two nodes of open sites and under it along every kind of path, must
//! print the same lines. [`KNOWN`] lists the exceptions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Shared, World, root};

static GRID: Shared = Shared::new("conform");

/// How long all behaviours may take along a path. It guards against hanging only.
const DEADLINE: Duration = Duration::from_secs(600);

/// A kind of path between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The program holds the connection itself.
    Raw,
    /// The agents encrypt the connection.
    Encrypted,
}

const BOTH: &[Kind] = &[Kind::Raw, Kind::Encrypted];
const RAW: &[Kind] = &[Kind::Raw];
const ENCRYPTED: &[Kind] = &[Kind::Encrypted];

/// Lines in which isthmus differs from the kernel: the kinds of paths, the behaviour with its part,
/// the native line, and isthmus's line. docs/shim.md has the reasons.
const KNOWN: &[(&[Kind], &str, &str, &str)] = &[
    (BOTH, "unreachable.left", "by recv: EHOSTUNREACH", "by recv: ECONNREFUSED"),
    (BOTH, "exec_pending.left", "events OUT", "events none"),
    (BOTH, "exec_pending.left", "connected 1", "connected 0"),
    (BOTH, "cancelled.left", "goes on: EALREADY", "goes on: EINPROGRESS"),
    (BOTH, "options_unset.right", LISTENER, LISTENER_ON_LOOPBACK),
    (RAW, "options_unset.right", REUSE_OFF, REUSE_ON),
    (ENCRYPTED, "ends.left", "events IN OUT ERR HUP RDHUP", "events IN OUT RDHUP"),
    (ENCRYPTED, "ends.left", "send: EPIPE", "send: ok"),
    (ENCRYPTED, "urgent.right", "events IN PRI", "events IN"),
    (ENCRYPTED, "urgent.right", "urgent: ok", "urgent: EINVAL"),
    (ENCRYPTED, "urgent.right", "abde, urgent c", "abde, urgent -"),
];

/// Lines in which isthmus may differ, as a connect that is given up races with its knock. Each has
/// the behaviour with its part, the native line, and isthmus's line.
const RACES: &[(&str, &str, &str)] = &[
    ("closing_race.left", "pipes that are not: 0", "pipes that are not: 1"),
    ("pending_ended.right", "no connection: none", "no connection: IN"),
    ("pending_ended.right", "accept: EAGAIN", "accept: ok"),
];

const LISTENER: &str =
    "TCP_USER_TIMEOUT 0, TCP_CORK 0, SO_OOBINLINE 0, IP_TOS 0, IP_TTL 64, SO_BINDTODEVICE -1";
const LISTENER_ON_LOOPBACK: &str =
    "TCP_USER_TIMEOUT 0, TCP_CORK 0, SO_OOBINLINE 0, IP_TOS 0, IP_TTL 64, SO_BINDTODEVICE -22";
const REUSE_OFF: &str = "TCP_NODELAY 0, SO_KEEPALIVE 0, TCP_KEEPIDLE 7200, SO_REUSEADDR 0, SO_REUSEPORT 0";
const REUSE_ON: &str = "TCP_NODELAY 0, SO_KEEPALIVE 0, TCP_KEEPIDLE 7200, SO_REUSEADDR 1, SO_REUSEPORT 0";

/// The lines that both parts of all behaviours print, by `NAME.PART`.
type Lines = BTreeMap<String, Vec<String>>;

struct Run {
    directory: PathBuf,
    names: Vec<String>,
}

impl Run {
    /// Compiles the behaviours and makes the pipes between their parts.
    fn new(world: &World, name: &str) -> Result<Self> {
        let directory = world.directory.path().join(name);
        fs::create_dir(&directory)?;
        let binary = binary(world.directory.path())?;
        let listed = Command::new(&binary).arg("--list").output()?;
        let listed = String::from_utf8(listed.stdout)?;
        // To look at a few of them by hand.
        let only = std::env::var("ISTHMUS_SAME").ok();
        let names: Vec<String> = listed
            .lines()
            .filter(|name| only.as_ref().is_none_or(|only| only.split(',').any(|wanted| wanted == *name)))
            .map(str::to_owned)
            .collect();
        let ways = names.iter().flat_map(|name| [format!("{name}.to-left"), format!("{name}.to-right")]);
        let made = Command::new("mkfifo").current_dir(&directory).args(ways).status()?;
        ensure!(made.success(), "mkfifo failed");
        Ok(Self { directory, names })
    }

    fn words<'a>(&'a self, first: &[&'a str]) -> Vec<&'a str> {
        first.iter().copied().chain(self.names.iter().map(String::as_str)).collect()
    }

    fn lines(&self) -> Result<Lines> {
        let mut out = Lines::new();
        for name in &self.names {
            for part in ["left", "right"] {
                let read = |suffix: &str| {
                    let path = self.directory.join(format!("{name}.{part}{suffix}"));
                    fs::read_to_string(&path).with_context(|| format!("{} is missing", path.display()))
                };
                let mut lines: Vec<String> = read("")?.lines().map(str::to_owned).collect();
                lines.extend(read(".stderr")?.lines().map(|line| format!("stderr: {line}")));
                out.insert(format!("{name}.{part}"), lines);
            }
        }
        Ok(out)
    }
}

fn binary(directory: &Path) -> Result<PathBuf> {
    let sources = root().join("crates/shim/tests/same");
    let binary = directory.join("same");
    if !binary.exists() {
        let files: Vec<PathBuf> =
            fs::read_dir(&sources)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "c"));
        let compiled = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&binary)
            .args(files)
            .status()?;
        ensure!(compiled.success(), "{} does not compile", sources.display());
    }
    Ok(binary)
}

fn script(name: &str) -> String {
    root().join("tests/programs").join(name).display().to_string()
}

/// The lines that the behaviours print without isthmus.
fn native(world: &World) -> Result<&'static Lines> {
    static LINES: OnceLock<Lines> = OnceLock::new();
    if let Some(lines) = LINES.get() {
        return Ok(lines);
    }
    let run = Run::new(world, "native")?;
    let (left, right) = ("n1.alpha", "n1.beta");
    let address = |node| address_of(world, node);
    let (left_address, right_address) = (address(left)?, address(right)?);
    let (binary, directory) = (binary(world.directory.path())?, run.directory.display().to_string());
    let binary = binary.display().to_string();
    let script = script("same-native.sh");
    let left_words =
        run.words(&[&script, "left", &binary, &directory, &left_address, &right_address, left, right]);
    let right_words =
        run.words(&[&script, "right", &binary, &directory, &right_address, &left_address, right, left]);
    let mut other = world.command(right, DEADLINE, &right_words)?.stdin(Stdio::null()).spawn()?;
    let output = world.sh(left, DEADLINE, &left_words)?;
    ensure!(output.status == 0, "{}", output.whole());
    ensure!(other.wait()?.success(), "the right part failed");
    let lines = run.lines()?;
    Ok(LINES.get_or_init(|| lines))
}

fn address_of(world: &World, name: &str) -> Result<String> {
    let sites = &world.lab().record().grid.sites;
    let nodes = sites.iter().flat_map(|site| site.nodes.iter().map(move |node| (site, node)));
    let found = nodes.into_iter().find(|(site, node)| format!("{}.{}", node.name, site.name) == name);
    Ok(found.with_context(|| format!("no {name}"))?.1.address.to_string())
}

/// Descriptions of lines that differ from those of the reference, except for known differences.
fn differences(kind: Kind, native: &Lines, ours: &Lines) -> Vec<String> {
    let mut out = Vec::new();
    for (part, lines) in native {
        let ours = ours.get(part).map(Vec::as_slice).unwrap_or_default();
        for index in 0..lines.len().max(ours.len()) {
            let (want, got) = (lines.get(index).map(String::as_str), ours.get(index).map(String::as_str));
            let known = KNOWN
                .iter()
                .find(|(kinds, name, line, _)| kinds.contains(&kind) && name == part && Some(*line) == want);
            let race = RACES.iter().any(|race| race.0 == part && Some(race.1) == want && Some(race.2) == got);
            // The same line may be there for two sockets, of which one differs.
            if got != want && !race && known.is_none_or(|known| got != Some(known.3)) {
                out.push(format!(
                    "{part}, line {}: {} instead of {}",
                    index + 1,
                    got.unwrap_or("nothing"),
                    want.unwrap_or("nothing")
                ));
            }
        }
        for (kinds, name, line, instead) in KNOWN {
            let applies = kinds.contains(&kind) && name == part && lines.iter().any(|native| native == line);
            if applies && !ours.iter().any(|ours| ours == instead) {
                out.push(format!("{part}: {line:?} doesn't differ: take it out of what is known to"));
            }
        }
    }
    out
}

/// Compares the behaviours along a path between two nodes with the native ones. They wait for
/// timers, so they have the machine alone.
fn compare(kind: Kind, left: &str, right: &str) -> Result<()> {
    let world = GRID.take_alone()?;
    let native = native(&world)?;
    let path = format!("{left}-{right}");
    let run = Run::new(&world, &path)?;
    let binary = binary(world.directory.path())?.display().to_string();
    let (script, directory) = (script("same-job.sh"), run.directory.display().to_string());
    let nodes = format!("{left},{right}");
    let isthmus = isthmus_e2e::isthmus().display().to_string();
    let words = run
        .words(&[&isthmus, "run", "--quiet", "--nodes", &nodes, "--", &script, &binary, &directory, right]);
    let output = world.sh(left, DEADLINE, &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    let differences = differences(kind, native, &run.lines()?);
    if !differences.is_empty() {
        bail!("{} lines differ:\n{}", differences.len(), differences.join("\n"));
    }
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn the_same_within_a_site() -> Result<()> {
    compare(Kind::Raw, "n1.alpha", "n2.alpha")
}

#[test]
#[ignore = "test-all"]
fn the_same_between_open_sites() -> Result<()> {
    compare(Kind::Encrypted, "n1.alpha", "n1.beta")
}

#[test]
fn the_same_over_a_relay() -> Result<()> {
    compare(Kind::Encrypted, "n1.gamma", "n1.delta")
}

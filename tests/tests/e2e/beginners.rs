//! What a beginner reads at each of the first mistakes: commands, exit statuses and whole
//! outputs, as the files tests/golden/beginners-*.txt have them, one for each part.
//!
//! A message names one cause and one remedy, once, in plain words. Where a change of one is
//! meant, `ISTHMUS_UPDATE_GOLDEN=1` writes the files anew.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Output, Shared, World, isthmus, root};
use regex::Regex;

/// Machines on which nothing of isthmus runs. Tests that share them leave them so.
static BARE: Shared = Shared::new("first-hours");

/// Environment variable with which the tests write the golden files anew.
const UPDATE: &str = "ISTHMUS_UPDATE_GOLDEN";
/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(180);

/// Patterns of what differs from run to run, each with the text that stands for it.
const VARIES: [(&str, &str); 10] = [
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z", "TIME"),
    (r"(?-u:\b)[0-9a-f]{32}(?-u:\b)", "ID"),
    (r"(?-u:\b)[0-9]+(\.[0-9]+)? ?(ms|s|min)(?-u:\b)", "N s"),
    ("N s( N s)+", "N s"),
    (r"[0-9]+(\.[0-9]+)? [kM]?B(?-u:\b)", "N B"),
    // The kernel may not have told of all by the end of a job.
    ("at least N B", "N B"),
    (r"([0-9]\.[0-9]+):[0-9]{5}(?-u:\b)", "$1:PORT"),
    (", wired up in N s", ""),
    (r"[0-9]+ connections?", "N connections"),
    (r"mpirun\.openmpi", "mpirun"),
];

/// What `isthmus run` says only if something takes long, such as a connection, or a launcher's daemon
/// that is slow to end.
const SLOW: [&str; 8] = [
    " can't connect to ",
    ", and there is no other yet; ",
    " has connected to ",
    "nothing is heard of ",
    " doesn't arrive",
    " is back after ",
    "; the command goes on",
    " had to be killed at the end",
];

/// What a beginner types and reads, as text.
struct Session<'a> {
    world: &'a World,
    rules: Vec<(Regex, &'static str)>,
    text: String,
}

impl<'a> Session<'a> {
    /// Begins the part of the session with this title.
    fn part(world: &'a World, title: &str) -> Result<Self> {
        let here = regex::escape(&directory(world));
        let rules = std::iter::once((here.as_str(), "HERE")).chain(VARIES);
        let rules = rules.map(|(varies, stands)| Ok((Regex::new(varies)?, stands)));
        Ok(Self { world, rules: rules.collect::<Result<_>>()?, text: format!("== {title}\n") })
    }

    /// Runs a shell line on a machine, in the directory that all machines share.
    fn sh(&self, machine: &str, line: &str) -> Result<Output> {
        let bin = isthmus().parent().map(|path| path.display().to_string()).unwrap_or_default();
        let script = format!(
            "cd {} && export PATH={bin}:$PATH COLUMNS=100 && {{ {line}\n}} 2>&1",
            directory(self.world)
        );
        self.world.sh(machine, LONG, &["sh", "-c", &script])
    }

    /// Runs a shell line that must succeed and isn't part of the text. Returns its output.
    fn quietly(&self, machine: &str, line: &str) -> Result<String> {
        let output = self.sh(machine, line)?;
        ensure!(output.status == 0, "{machine}: {line}: {}", output.whole());
        Ok(output.stdout)
    }

    /// Runs a shell line on a machine, and adds it to the text with its output and status.
    fn on(&mut self, machine: &str, line: &str) -> Result<()> {
        let said = self.sh(machine, line)?;
        self.add(machine, line, said.status, &said.stdout);
        Ok(())
    }

    /// Runs a job on a machine, and adds it to the text with its status. Of the output, only what
    /// isthmus says is added, as a launcher may write as well.
    fn job(&mut self, machine: &str, line: &str) -> Result<()> {
        let said = self.sh(machine, line)?;
        let ours = said.stdout.lines().skip_while(|line| !line.starts_with("isthmus: "));
        let ours = ours.filter(|line| line.starts_with("isthmus: ") || line.starts_with("  "));
        let ours = ours.filter(|line| !SLOW.iter().any(|text| line.contains(text)));
        let text: String = ours.flat_map(|line| [line, "\n"]).collect();
        self.add(machine, line, said.status, &text);
        Ok(())
    }

    fn add(&mut self, machine: &str, line: &str, status: i32, said: &str) {
        let mut text = format!("\n{machine}$ {line}\n{said}");
        for (varies, stands) in &self.rules {
            text = varies.replace_all(&text, *stands).into_owned();
        }
        self.text += &text;
        self.text += &format!("[{status}]\n");
    }
}

fn directory(world: &World) -> String {
    world.directory.path().display().to_string()
}

/// Checks that the session's text is that of the golden file of its title.
fn compare(session: &Session<'_>) -> Result<()> {
    let text = session.text.as_str();
    let title = text.lines().next().and_then(|line| line.strip_prefix("== ")).context("no title")?;
    let golden = root().join(format!("tests/golden/beginners-{}.txt", title.replace(' ', "-")));
    as_kept(text, &golden)
}

fn as_kept(text: &str, golden: &Path) -> Result<()> {
    if std::env::var_os(UPDATE).is_some() {
        std::fs::create_dir_all(golden.parent().context("no directory")?)?;
        std::fs::write(golden, text)?;
    }
    let kept = std::fs::read_to_string(golden).unwrap_or_default();
    let changed: Vec<_> = text.lines().filter(|line| !kept.lines().any(|other| other == *line)).collect();
    let gone: Vec<_> = kept.lines().filter(|line| !text.lines().any(|other| other == *line)).collect();
    ensure!(
        text == kept,
        "the messages are not as {} has them ({UPDATE}=1 writes it anew)\nnew: {changed:#?}\ngone: {gone:#?}\n\
         all of them:\n{text}",
        golden.display()
    );
    Ok(())
}

/// Types lines on the first node of machines on which nothing runs, and compares the session.
/// `before` makes what the lines need.
fn typed(title: &str, before: &str, lines: &[&str]) -> Result<()> {
    let world = BARE.take()?;
    let mut session = Session::part(&world, title)?;
    session.quietly("n1.alpha", before)?;
    lines.iter().try_for_each(|line| session.on("n1.alpha", line))?;
    compare(&session)
}

#[test]
fn the_command_line() -> Result<()> {
    typed(
        "the command line",
        "true",
        &[
            "isthmus",
            "isthmus rum -- hostname",
            "isthmus run",
            "isthmus run --node n1.alpha -- hostname",
            "isthmus run -n 4 ./app",
            "isthmus run --min-nodes few -- hostname",
            "isthmus run --outlive 15 -- hostname",
            "isthmus plan n1.alpha",
            "isthmus grid init --name lab",
            "isthmus grid invite --site alpha --owner ada",
            "isthmus grid invite --site 'al pha' --owner ada --nodes 2",
            "isthmus grid invite --site alpha --owner ada --nodes many",
        ],
    )
}

#[test]
fn nothing_runs() -> Result<()> {
    typed(
        "nothing runs",
        "echo garbage > garbage.token",
        &[
            "isthmus run -- hostname",
            "isthmus status",
            "isthmus plan n1.alpha n1.beta",
            "isthmus doctor",
            "isthmus trunks",
            "isthmus exec n1.beta -- hostname",
            "isthmus down",
            "isthmus up",
            "isthmus up --token missing.token",
            "isthmus up --token garbage.token",
            "isthmus agent",
            "isthmus broker",
            "isthmus grid invite --site alpha --owner ada --nodes 2",
        ],
    )
}

#[test]
fn labs() -> Result<()> {
    typed(
        "labs",
        "echo '[[site' > broken.toml; echo 'nme = \"x\"' > misspelt.toml",
        &[
            "isthmus lab up",
            "isthmus lab up missing.toml",
            "isthmus lab up broken.toml",
            "isthmus lab up misspelt.toml",
            "isthmus lab up --preset two-natz",
            "isthmus lab exec n1.alpha -- hostname",
            "isthmus lab down",
        ],
    )
}

const INIT: &str = "isthmus grid init --name lab --address 198.51.100.10";

/// Makes a grid with a running broker, and invites both sites.
fn invited(session: &Session<'_>) -> Result<()> {
    session.quietly("hub", INIT)?;
    session.quietly("hub", "isthmus up")?;
    let invite = "isthmus grid invite --site";
    session
        .quietly("hub", &format!("{invite} alpha --owner ada --nodes 2 --gateways 1 --out alpha.token"))?;
    session.quietly("hub", &format!("{invite} beta --owner ada --nodes 1 --gateways 1 --out beta.token"))?;
    Ok(())
}

/// The command by which nodes of site alpha join.
fn join(session: &Session<'_>) -> Result<String> {
    let front_end = session.world.lab().machine("fe.alpha")?.address();
    Ok(format!("isthmus up --token alpha.token --via {front_end}"))
}

/// Has the gateways and nodes of both sites join, once they are invited.
fn joined(session: &Session<'_>) -> Result<()> {
    let join = join(session)?;
    session.quietly("fe.alpha", "isthmus up --token alpha.token")?;
    for node in ["n1.alpha", "n2.alpha"] {
        let slots =
            "mkdir -pm 700 /var/lib/isthmus; printf '[agent]\\nslots = 4\\n' > /var/lib/isthmus/isthmus.toml";
        session.quietly(node, slots)?;
        session.quietly(node, &join)?;
    }
    session.quietly("fe.beta", "isthmus up --token beta.token --node")?;
    all_up(session, 3)
}

/// Waits until so many nodes are up.
fn all_up(session: &Session<'_>, count: usize) -> Result<()> {
    World::eventually("the nodes are as they should be", LONG, || {
        let status: serde_json::Value =
            serde_json::from_str(&session.quietly("n1.alpha", "isthmus status --json")?)?;
        let nodes = status["nodes"].as_array().context("no nodes")?;
        Ok(nodes.iter().filter(|node| node["up"] == true).count() == count)
    })
}

/// Makes the grid as a beginner would: two sites, with three nodes that are up and can reach each
/// other.
fn made(session: &Session<'_>) -> Result<()> {
    invited(session)?;
    joined(session)?;
    for (from, to) in [("a1.alpha", "b1.beta"), ("b1.beta", "a1.alpha")] {
        World::eventually("it is known how the sites reach each other", LONG, || {
            let plan = session.sh("n1.alpha", &format!("isthmus plan {from} {to} --json"))?;
            let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap_or_default();
            Ok(plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()))
        })?;
    }
    Ok(())
}

#[test]
fn a_grid_is_made() -> Result<()> {
    let world = World::up("first-hours")?;
    let mut session = Session::part(&world, "a grid is made")?;
    session.on("hub", "isthmus grid init --name 'my grid' --address 198.51.100.10")?;
    session.quietly("hub", INIT)?;
    session.on("hub", INIT)?;
    session.on("hub", "isthmus status")?;
    session.on("hub", "isthmus doctor")?;
    session.quietly("hub", "isthmus up")?;
    session.quietly(
        "hub",
        "isthmus grid invite --site beta --owner ada --nodes 1 --gateways 1 --expires 1s --out old.token",
    )?;
    // The token's end is given in whole seconds.
    std::thread::sleep(Duration::from_secs(3));
    session.on("fe.beta", "isthmus up --token old.token")?;
    compare(&session)
}

#[test]
fn machines_join() -> Result<()> {
    let world = World::up("first-hours")?;
    let mut session = Session::part(&world, "machines join")?;
    invited(&session)?;
    let join = join(&session)?;
    session.on("n1.alpha", &join)?;
    session.on("n1.alpha", "isthmus up --token alpha.token --via nowhere")?;
    joined(&session)?;
    session.on("n1.alpha", "isthmus up --token alpha.token")?;
    session.on("n3.alpha", &join)?;
    session.quietly("hub", "isthmus grid invite --site alpha --owner bob --nodes 4 --out bob.token")?;
    session.on("n3.alpha", "isthmus up --token bob.token")?;
    session.quietly("hub", "isthmus grid invite --role relay --name r2 --out r2.token")?;
    session.quietly("n3.alpha", "isthmus join --state r2 --token r2.token")?;
    session.on("n3.alpha", "isthmus join --state again --token r2.token")?;
    session.on("n1.alpha", "isthmus join --token r2.token")?;
    compare(&session)
}

#[test]
fn commands_that_cannot_start() -> Result<()> {
    let world = World::up("first-hours")?;
    let mut session = Session::part(&world, "commands that cannot start")?;
    made(&session)?;
    let node = "n1.alpha";
    session.quietly(
        node,
        "echo 'echo hi' > notes.txt; cp notes.txt script; cp /bin/true app; cp /bin/true /tmp/only-here; \
         echo 'int main(void) { return 0; }' > static.c; cc -static -o static static.c; chmod +x script; \
         printf '#!/bin/sh\necho srun: error: no configuration >&2; exit 1\n' > srun; chmod +x srun",
    )?;
    for line in [
        "isthmus run -- mpirum -n 4 ./app",
        "isthmus run -- ./no-such-app",
        "isthmus run -- ./notes.txt",
        "isthmus run -- app",
        "isthmus run -- /tmp",
        "isthmus run -- mpirun.nowhere -n 4 ./app",
        "isthmus run -- ./srun -n 4 ./app",
        "isthmus run --each -- mpirun.openmpi ./app",
    ] {
        session.on(node, line)?;
    }
    for line in [
        "isthmus run -- ./script",
        "isthmus run -- ./static",
        "isthmus run -- mpirun.openmpi -n 4 ./static",
        "isthmus run --nodes alpha -- mpirun.openmpi -n 4 /tmp/only-here",
        "isthmus run --nodes alpha -- mpirun.openmpi -n 4 ./no-such-app",
    ] {
        session.job(node, line)?;
    }
    compare(&session)
}

#[test]
fn nodes_and_ranks() -> Result<()> {
    // All ranks run on the first node. Where they ran is told only if its agent has seen them.
    const UNTIL_COUNTED: &str = "printf '#!/bin/sh\\nuntil grep -q ranks=4 /var/lib/isthmus/log; do sleep 0.1; done\\n' \
        > until-counted; chmod +x until-counted";
    let world = World::up("first-hours")?;
    let mut session = Session::part(&world, "nodes and ranks")?;
    made(&session)?;
    let node = "n1.alpha";
    session.quietly(node, UNTIL_COUNTED)?;
    for line in [
        "isthmus run --nodes n9.beta -- hostname",
        "isthmus run --nodes delta -- hostname",
        "isthmus run --nodes a1..alpha -- hostname",
        "isthmus run --nodes a1.alpha, -- hostname",
        "isthmus plan a1.alpha n9.beta",
        "isthmus status delta",
        "isthmus doctor pair alpha delta",
    ] {
        session.on(node, line)?;
    }
    for line in [
        // Twice is once.
        "isthmus run --nodes a1.alpha,a1.alpha -- hostname",
        "isthmus run --nodes alpha -- mpirun.openmpi -n 4 ./until-counted",
    ] {
        session.job(node, line)?;
    }
    session.on(node, "isthmus run --quiet --nodes a1,a2 -- getent hosts a2")?;
    compare(&session)
}

#[test]
fn a_node_is_down() -> Result<()> {
    let world = World::up("first-hours")?;
    let mut session = Session::part(&world, "a node is down")?;
    made(&session)?;
    session.quietly("n2.alpha", "isthmus down")?;
    all_up(&session, 2)?;
    for line in [
        "isthmus run --try-for 2s --nodes a1.alpha,a2.alpha -- true",
        "isthmus run --try-for 0 --nodes a2 -- true",
        "isthmus run -- true",
        "isthmus run --min-nodes 2 -- true",
        "isthmus run --try-for 2s --min-nodes 3 -- true",
        "isthmus run --nodes a1,a2 --min-nodes 1 -- true",
        "isthmus run --try-for 0 --nodes a2 --min-nodes 1 -- true",
    ] {
        session.job("n1.alpha", line)?;
    }
    compare(&session)
}

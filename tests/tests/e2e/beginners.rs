//! What a beginner reads at each of the first mistakes: commands, exit statuses and whole
//! outputs, as tests/golden/beginners.txt has them.
//!
//! A message names one cause and one remedy, once, in plain words. Where a change of one is
//! meant, `ISTHMUS_UPDATE_GOLDEN=1` writes the file anew.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Output, World, isthmus, root};
use regex::Regex;

/// Set to write the file anew.
const UPDATE: &str = "ISTHMUS_UPDATE_GOLDEN";
const LONG: Duration = Duration::from_secs(100);

/// What differs from run to run, and what stands for it.
const VARIES: [(&str, &str); 8] = [
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z", "TIME"),
    (r"(?-u:\b)[0-9a-f]{32}(?-u:\b)", "ID"),
    (r"(?-u:\b)[0-9]+(\.[0-9]+)? ?(ms|s|min)(?-u:\b)", "N s"),
    (r"[0-9]+(\.[0-9]+)? [kM]?B(?-u:\b)", "N B"),
    (r"([0-9]\.[0-9]+):[0-9]{5}(?-u:\b)", "$1:PORT"),
    (", wired up in N s", ""),
    (r"[0-9]+ connections?", "N connections"),
    (r"mpirun\.openmpi", "mpirun"),
];

/// A session of a beginner, as text.
struct Session<'a> {
    world: &'a World,
    rules: Vec<(Regex, &'static str)>,
    text: String,
}

impl<'a> Session<'a> {
    fn new(world: &'a World) -> Result<Self> {
        let here = regex::escape(&directory(world));
        let rules = std::iter::once((here.as_str(), "HERE")).chain(VARIES);
        let rules = rules.map(|(varies, stands)| Ok((Regex::new(varies)?, stands)));
        Ok(Self { world, rules: rules.collect::<Result<_>>()?, text: String::new() })
    }

    /// A line of a shell on a machine, in the directory that all machines share.
    fn sh(&self, machine: &str, line: &str) -> Result<Output> {
        let bin = isthmus().parent().map(|path| path.display().to_string()).unwrap_or_default();
        let script = format!(
            "cd {} && export PATH={bin}:$PATH COLUMNS=100 && {{ {line}\n}} 2>&1",
            directory(self.world)
        );
        self.world.sh(machine, LONG, &["sh", "-c", &script])
    }

    /// The same, which must go well; not a part of the text.
    fn quietly(&self, machine: &str, line: &str) -> Result<String> {
        let output = self.sh(machine, line)?;
        ensure!(output.status == 0, "{machine}: {line}: {}", output.whole());
        Ok(output.stdout)
    }

    fn part(&mut self, title: &str) {
        self.text += &format!("\n== {title}\n");
    }

    /// A command on a machine, with its output and status.
    fn on(&mut self, machine: &str, line: &str) -> Result<()> {
        let said = self.sh(machine, line)?;
        self.add(machine, line, said.status, &said.stdout);
        Ok(())
    }

    /// The same of a job, of which a launcher may tell as well: only what isthmus says.
    fn job(&mut self, machine: &str, line: &str) -> Result<()> {
        let said = self.sh(machine, line)?;
        let ours = said.stdout.lines().skip_while(|line| !line.starts_with("isthmus: "));
        let ours = ours.filter(|line| line.starts_with("isthmus: ") || line.starts_with("  "));
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

#[test]
fn mistakes_are_explained_in_plain_words() -> Result<()> {
    let world = World::up("first-hours")?;
    let mut session = Session::new(&world)?;
    nothing_runs(&mut session)?;
    a_grid_is_made(&mut session)?;
    machines_join(&mut session)?;
    commands_that_cannot_start(&mut session)?;
    nodes_and_ranks(&mut session)?;
    compare(session.text.trim_start(), &root().join("tests/golden/beginners.txt"))
}

fn compare(text: &str, golden: &Path) -> Result<()> {
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

fn nothing_runs(session: &mut Session<'_>) -> Result<()> {
    let node = "n1.alpha";
    session.part("the command line");
    for line in [
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
    ] {
        session.on(node, line)?;
    }
    session.part("nothing runs");
    session.quietly(node, "echo garbage > garbage.token")?;
    for line in [
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
    ] {
        session.on(node, line)?;
    }
    session.part("labs");
    session.quietly(node, "echo '[[site' > broken.toml; echo 'nme = \"x\"' > misspelt.toml")?;
    for line in [
        "isthmus lab up",
        "isthmus lab up missing.toml",
        "isthmus lab up broken.toml",
        "isthmus lab up misspelt.toml",
        "isthmus lab up --preset two-natz",
        "isthmus lab exec n1.alpha -- hostname",
        "isthmus lab down",
    ] {
        session.on(node, line)?;
    }
    Ok(())
}

fn a_grid_is_made(session: &mut Session<'_>) -> Result<()> {
    let init = "isthmus grid init --name lab --address 198.51.100.10";
    session.part("a grid is made");
    session.on("hub", "isthmus grid init --name 'my grid' --address 198.51.100.10")?;
    session.quietly("hub", init)?;
    session.on("hub", init)?;
    session.on("hub", "isthmus status")?;
    session.on("hub", "isthmus doctor")?;
    session.quietly("hub", "isthmus up")?;
    let invite = "isthmus grid invite --site";
    session.quietly("hub", &format!("{invite} alpha --owner ada --nodes 2 --out alpha.token"))?;
    session.quietly("hub", &format!("{invite} beta --owner ada --nodes 1 --out beta.token"))?;
    session.quietly("hub", &format!("{invite} beta --owner ada --nodes 1 --expires 1s --out old.token"))?;
    // Its end is given in whole seconds.
    std::thread::sleep(Duration::from_secs(3));
    session.on("fe.beta", "isthmus up --token old.token")
}

fn machines_join(session: &mut Session<'_>) -> Result<()> {
    session.part("machines join");
    let front_end = session.world.lab().machine("fe.alpha")?.address().to_string();
    let join = format!("isthmus up --token alpha.token --via {front_end}");
    session.on("n1.alpha", &join)?;
    session.on("n1.alpha", "isthmus up --token alpha.token --via nowhere")?;
    session.quietly("fe.alpha", "isthmus up --token alpha.token")?;
    for node in ["n1.alpha", "n2.alpha"] {
        let slots =
            "mkdir -pm 700 /var/lib/isthmus; printf '[agent]\\nslots = 4\\n' > /var/lib/isthmus/isthmus.toml";
        session.quietly(node, slots)?;
        session.quietly(node, &join)?;
    }
    session.on("n1.alpha", "isthmus up --token alpha.token")?;
    session.on("n3.alpha", &join)?;
    session.quietly("fe.beta", "isthmus up --token beta.token --node")?;
    session.quietly("hub", "isthmus grid invite --role relay --name r2 --out r2.token")?;
    session.quietly("n3.alpha", "isthmus join --state r2 --token r2.token")?;
    session.on("n3.alpha", "isthmus join --state again --token r2.token")?;
    session.on("n1.alpha", "isthmus join --token r2.token")?;
    all_up(session, 3)
}

fn all_up(session: &Session<'_>, count: usize) -> Result<()> {
    World::eventually("the nodes are as they should be", Duration::from_secs(60), || {
        let status: serde_json::Value =
            serde_json::from_str(&session.quietly("n1.alpha", "isthmus status --json")?)?;
        let nodes = status["nodes"].as_array().context("no nodes")?;
        Ok(nodes.iter().filter(|node| node["up"] == true).count() == count)
    })
}

fn commands_that_cannot_start(session: &mut Session<'_>) -> Result<()> {
    let node = "n1.alpha";
    session.part("commands that cannot start");
    session.quietly(
        node,
        "echo 'echo hi' > notes.txt; cp notes.txt script; cp /bin/true app; cp /bin/true /tmp/only-here; \
         echo 'int main(void) { return 0; }' > static.c; cc -static -o static static.c; chmod +x script",
    )?;
    for line in [
        "isthmus run -- mpirum -n 4 ./app",
        "isthmus run -- ./no-such-app",
        "isthmus run -- ./notes.txt",
        "isthmus run -- app",
        "isthmus run -- /tmp",
        "isthmus run -- mpirun.nowhere -n 4 ./app",
        "isthmus run -- srun -n 4 ./app",
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
    Ok(())
}

fn nodes_and_ranks(session: &mut Session<'_>) -> Result<()> {
    let node = "n1.alpha";
    session.part("nodes and ranks");
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
        "isthmus run --nodes alpha -- mpirun.openmpi -n 4 sleep 4",
    ] {
        session.job(node, line)?;
    }
    session.on(node, "isthmus run --quiet --nodes a1,a2 -- getent hosts a2")?;
    session.part("a node is down");
    session.quietly("n2.alpha", "isthmus down")?;
    all_up(session, 2)?;
    for line in [
        "isthmus run --nodes a1.alpha,a2.alpha -- true",
        "isthmus run --nodes a2 -- true",
        "isthmus run -- true",
        "isthmus run --min-nodes 2 -- true",
        "isthmus run --min-nodes 3 -- true",
        "isthmus run --nodes a1,a2 --min-nodes 1 -- true",
        "isthmus run --nodes a2 --min-nodes 1 -- true",
    ] {
        session.job(node, line)?;
    }
    Ok(())
}

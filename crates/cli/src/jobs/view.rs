//! A job as `isthmus jobs` and `isthmus status` show it, and a command of this machine that is none yet.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_front::format::{bytes, count, site};
use isthmus_front::notes::{Kind, Note, Phase};
use isthmus_front::output::one_line;
use isthmus_run::joined::{self, Pair};
use isthmus_wire::proto::{JobReport, Joined};
use isthmus_wire::text::first;
use serde::Serialize;

/// Most sites that a line names.
const SITES: usize = 8;
/// How many digits of an id are shown. Two ids of a user that begin so alike are a rare chance.
const DIGITS: usize = 8;

/// A running job.
#[derive(Debug, Serialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) program: String,
    /// Grid names of the job's nodes, the head first; the broker cuts a very long list.
    pub(crate) nodes: Vec<String>,
    /// How many nodes the job has, also those that the list lacks.
    pub(crate) node_count: u32,
    pub(crate) started_unix_ms: u64,
    /// How each pair of the job's nodes is joined; the broker cuts a very long list.
    pub(crate) joined: Vec<Pair>,
    /// How many pairs the list lacks.
    pub(crate) joined_left_out: u32,
    /// How each pair of the job's sites is joined, by the pairs of nodes that the list has.
    #[serde(skip)]
    between: Vec<Pair>,
}

/// A command of this user on this machine that has started no job yet, or keeps nodes for several.
#[derive(Debug, Serialize)]
pub(super) struct Command {
    pub(super) id: String,
    #[serde(skip)]
    pub(super) first_id: String,
    /// "run" or "alloc".
    command: Kind,
    program: String,
    /// "starts", "waits" for nodes of batch schedulers, or "runs".
    phase: Phase,
    since_unix_ms: u64,
    /// The sites whose batch schedulers are to give nodes for it.
    sites: Vec<String>,
    pid: i32,
}

impl Job {
    /// A job, as its head reports it.
    pub(crate) fn new(report: &JobReport) -> Self {
        let is_between = |entry: &&Joined| site(&entry.initiator) != site(&entry.acceptor);
        let between: Vec<&Joined> = report.joined.iter().filter(is_between).collect();
        Self {
            id: report.job.clone(),
            owner: report.owner.clone(),
            program: report.program.clone(),
            nodes: report.nodes.clone(),
            node_count: report.node_count.max(number(report.nodes.len())),
            started_unix_ms: report.started_unix_ms,
            joined: joined::pairs(&report.joined.iter().collect::<Vec<_>>(), |name| name),
            joined_left_out: report.joined_count.saturating_sub(number(report.joined.len())),
            between: joined::pairs(&between, site),
        }
    }

    /// The job in a line, and a table of the pairs of sites; with `verbose`, of nodes.
    pub(crate) fn text(&self, verbose: bool) -> String {
        let mut text = format!(
            "job {}: {} of {}, {} from {}, for {}\n",
            short(&self.id),
            one_line(&self.program),
            self.owner(),
            count(self.node_count.into(), "node"),
            self.head(),
            since(self.started_unix_ms),
        );
        text.push_str(&match verbose {
            true => joined::table("nodes", &self.joined),
            false => joined::table("sites", &self.between),
        });
        if self.joined_left_out > 0 {
            text.push_str(&format!(" and {} more pairs of nodes\n", self.joined_left_out));
        }
        text
    }

    /// [`Self::text`] with the whole id, and the nodes of each site.
    pub(super) fn details(&self) -> String {
        let text = self.text(false);
        let (line, table) = text.split_once('\n').unwrap_or((text.as_str(), ""));
        let mut details = format!("{line}\n id {}\n", self.id);
        for (site, nodes) in self.by_site() {
            details.push_str(&format!(" nodes of {site}: {}\n", nodes.join(", ")));
        }
        if self.left_out() > 0 {
            details.push_str(&format!(" and {}\n", count(self.left_out(), "more node")));
        }
        details + table
    }

    /// The columns of a row of [`HEADER`].
    pub(super) fn row(&self) -> Vec<String> {
        let by_site = self.by_site();
        let by_site = by_site.iter().map(|(site, nodes)| format!("{site} {}", nodes.len()));
        let more = match self.left_out() {
            0 => String::new(),
            more => format!(", {more} more nodes"),
        };
        let connections = self.between.iter().map(|pair| pair.connections);
        vec![
            short(&self.id).to_owned(),
            self.owner().to_owned(),
            self.program.clone(),
            since(self.started_unix_ms),
            first(by_site, 0, SITES) + &more,
            self.head().to_owned(),
            connections.fold(0, u64::saturating_add).to_string(),
            self.crossed(),
        ]
    }

    /// The relays over which the job's sites are joined, each with two of the sites.
    pub(crate) fn relayed(&self) -> impl Iterator<Item = (&str, &[String; 2])> {
        self.between.iter().filter_map(|pair| Some((pair.relay.as_deref()?, &pair.ends)))
    }

    fn owner(&self) -> &str {
        if self.owner.is_empty() { "an unknown user" } else { &self.owner }
    }

    fn head(&self) -> &str {
        self.nodes.first().map_or("nowhere", String::as_str)
    }

    /// How many nodes the list lacks.
    fn left_out(&self) -> u64 {
        u64::from(self.node_count.saturating_sub(number(self.nodes.len())))
    }

    /// The nodes of each site, the head's first.
    fn by_site(&self) -> Vec<(&str, Vec<&str>)> {
        let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
        for node in self.nodes.iter().map(String::as_str) {
            let of = site(node);
            match all.iter_mut().find(|(site, _)| *site == of) {
                Some((_, nodes)) => nodes.push(node),
                None => all.push((of, vec![node])),
            }
        }
        all
    }

    /// The bytes that have crossed between sites so far, both ways together.
    fn crossed(&self) -> String {
        let counted = self.between.iter().filter_map(|pair| pair.bytes).flatten();
        let counted = counted.fold(0, u64::saturating_add);
        let is_least = self.between.iter().any(|pair| pair.bytes.is_none() || pair.bytes_least);
        match (self.between.as_slice(), is_least, counted) {
            ([], ..) => "-".to_owned(),
            (_, true, 0) => "not counted".to_owned(),
            (_, true, _) => format!("at least {}", bytes(counted)),
            (_, false, _) => bytes(counted),
        }
    }
}

/// The columns of a table of jobs, and those that are numbers.
pub(super) const HEADER: [&str; 8] =
    ["job", "owner", "program", "for", "nodes", "head", "connections", "between sites"];
pub(super) const NUMBERS: [usize; 2] = [6, 7];

impl Command {
    pub(super) fn new(note: Note) -> Self {
        Self {
            id: note.id,
            first_id: note.first_id,
            command: note.kind,
            program: note.program,
            phase: note.phase,
            since_unix_ms: note.since_unix_ms,
            sites: note.sites,
            pid: note.process.pid,
        }
    }

    /// The command in a line.
    pub(super) fn text(&self) -> String {
        let sites = first(self.sites.iter(), 0, SITES);
        let does = match (self.phase, self.command) {
            (Phase::Starts, _) => "is being started".to_owned(),
            (Phase::Waits, _) => format!("waits for nodes of {sites}"),
            (Phase::Runs, Kind::Alloc) => format!("has nodes of {sites}"),
            (Phase::Runs, Kind::Run) => "runs; the grid doesn't list it".to_owned(),
        };
        let (name, since) = (name(self.command, &self.id), since(self.since_unix_ms));
        format!("{name}: {} {}, for {since}\n", one_line(&self.program), one_line(&does))
    }
}

/// What messages call a command of `isthmus`: "job 3f2a9c1e".
pub(crate) fn name(command: Kind, id: &str) -> String {
    let what = match command {
        Kind::Run => "job",
        Kind::Alloc => "allocation",
    };
    format!("{what} {}", short(id))
}

/// The beginning of an id, by which it is shown.
pub(crate) fn short(id: &str) -> &str {
    id.get(..DIGITS).unwrap_or(id)
}

/// How long ago something was, in words.
fn since(unix_ms: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let seconds = SystemTime::now().duration_since(then).map_or(0, |ago| ago.as_secs());
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn number(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

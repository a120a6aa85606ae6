//! The command line of `isthmus run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use isthmus_common::quantity::ByteSize;
use isthmus_common::time::whole_seconds;
use isthmus_front::format::{number, trimmed};
use isthmus_front::notes;
use isthmus_wire::patience::{DEFAULT, LONGEST};

use crate::notice::Notice;
use crate::pilots::{Asking, BatchArgs};
use crate::placing::Placed;
use crate::staging::StagingArgs;

/// Run a command, such as mpirun, as one job over all sites.
///
/// The command runs on this node, which must have an agent. MPI's own launcher
/// starts the ranks on the other nodes through their agents. Exit status: the
/// command's own; 125 if isthmus itself failed; 126 or 127 if the command
/// could not be started or found; 128 and the signal's number (143 for SIGTERM,
/// 130 for SIGINT) if a signal to `isthmus run` ended it.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "isthmus run [OPTIONS] -- COMMAND [ARGUMENT]...")]
pub struct RunArgs {
    /// Nodes (NODE.SITE, or NODE of this site) or whole sites to use; all that are up by
    /// default, or in a batch job of Slurm that job's nodes, or those of `isthmus alloc`.
    #[arg(long, value_delimiter = ',', value_parser = trimmed, value_name = "NAME")]
    pub(super) nodes: Vec<String>,
    /// In a batch job of Slurm: nodes or whole sites to use beside the batch job's nodes.
    ///
    /// Without --nodes, a run in a batch job uses the batch job's nodes, and starts agents by srun on
    /// those that have none. These end with the run.
    #[arg(
        long, value_delimiter = ',', value_parser = trimmed, value_name = "NAME",
        conflicts_with_all = ["nodes", "pilots"]
    )]
    pub(super) with: Vec<String>,
    /// In a batch job or within `isthmus alloc`: don't use its nodes unasked.
    #[arg(long, conflicts_with = "with")]
    pub(super) no_allocation: bool,
    /// In a batch job: file with a join token of the site, by which its nodes become members of the
    /// grid. Needed the first time.
    #[arg(long, env = "ISTHMUS_TOKEN", value_name = "FILE")]
    pub(super) token: Option<PathBuf>,
    /// In a batch job: the site's front-end, at which its nodes join and attach.
    #[arg(long, env = "ISTHMUS_VIA", value_name = "HOST[:PORT]")]
    pub(super) via: Option<String>,
    /// Start without nodes that are down, if so many others are there.
    ///
    /// With whole sites and without --nodes, one is enough by default. Nodes that --nodes
    /// names must all be there by default.
    #[arg(long, value_name = "NUMBER", value_parser = number, conflicts_with = "pilots")]
    pub(super) min_nodes: Option<u32>,
    /// Print errors only.
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// At the end, print how each pair of nodes was joined, not only each pair of
    /// sites.
    #[arg(long, short, conflicts_with = "quiet")]
    pub(super) verbose: bool,
    /// Write the account of the job to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Draw the job's sites, and how each two were joined, to this file (SVG).
    #[arg(long, value_name = "FILE")]
    pub(super) picture: Option<PathBuf>,
    /// At the end, print how long each phase of the start took, and each node.
    /// With a file name, also draw it there (SVG).
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(super) timing: Option<Option<PathBuf>>,
    /// Run the command on every node, not only on this one.
    ///
    /// Its environment has ISTHMUS_NODE_RANK (0, 1, ...), ISTHMUS_NODES (how
    /// many), ISTHMUS_NODE (its own name), ISTHMUS_HEAD (that of rank 0) and
    /// ISTHMUS_NODE_LIST (all, separated by commas). The rest is the environment
    /// of its node's agent. It has no input. It starts in this directory, if the
    /// node has it. When it fails on one node, isthmus ends it on all.
    #[arg(long)]
    pub(super) each: bool,
    /// With --each: join a job that was started on this node and runs, by the beginning of its id
    /// (isthmus jobs). The programs of both connect with each other.
    ///
    /// The run has nodes and an end of its own. It ends when the job ends. ISTHMUS_HEAD is the first node on
    /// which the job's command runs, and ISTHMUS_JOINED the job's id.
    #[arg(long, value_name = "JOB", requires = "each", value_parser = job_id)]
    pub(super) join: Option<String>,
    /// With --each: set a variable for the command; without a value, to what it
    /// is here.
    #[arg(long, value_name = "NAME[=VALUE]", requires = "each")]
    pub(super) env: Vec<String>,
    /// With --each: don't begin lines of output with the node's name.
    #[arg(long, requires = "each")]
    pub(super) no_prefix: bool,
    /// Free memory that each node must have, such as "2 GiB".
    #[arg(long, value_name = "SIZE", conflicts_with = "no_check")]
    pub(super) min_memory: Option<ByteSize>,
    /// Start without checking the nodes: program and whether it can be carried,
    /// libraries, MPI version, memory, clocks, connections between sites.
    #[arg(long)]
    pub(super) no_check: bool,
    /// How long the job waits for a site that is cut off, such as "10m". With 0 it
    /// ends after a few seconds.
    #[arg(long, value_name = "TIME", value_parser = outlive, default_value = "15m")]
    pub(super) outlive: Duration,
    /// How long a job that can't start because something is away, such as a service that
    /// restarts, is tried again. With 0 it is tried once.
    #[arg(long, value_name = "TIME", value_parser = try_for, default_value = "30s")]
    pub(super) try_for: Duration,
    /// A signal, USR1 or USR2, that the command gets so long before the time of its batch jobs is over,
    /// such as "USR1@5m"; by default 60 s. Launchers pass it on to the ranks, which may save their state.
    #[arg(long, value_name = "SIGNAL[@TIME]")]
    pub(super) signal: Option<Notice>,
    /// How long the agent of a node may be silent, such as "20s", before the job ends. From
    /// 5s to 1m. Between sites --outlive counts, unless it is 0.
    #[arg(long, value_name = "TIME", value_parser = patience, default_value = "5s")]
    pub(super) patience: Duration,
    /// Go on when isthmus gives up on a connection. The program gets the error, as from a
    /// kernel. By default the job ends with the reason, for most MPIs would wait for ever.
    #[arg(long)]
    pub(super) keep_going: bool,
    #[command(flatten)]
    pub(super) staging: StagingArgs,
    /// Encrypt data between sites at the nodes, even where the sites' gateways would do it
    /// in their place.
    #[arg(long)]
    pub(super) encrypt_to_nodes: bool,
    /// Leave the library for MPI out: the program's collectives are the MPI's own, and it
    /// can't ask where its ranks are.
    #[arg(long)]
    pub(super) no_coll: bool,
    /// Let MPI_Cart_create and MPI_Dist_graph_create number ranks anew where the program gives
    /// `reorder`, so that neighbours are at one site. Only for programs that then use the ranks of
    /// the new communicator alone.
    #[arg(long, conflicts_with = "no_coll")]
    pub(super) reorder: bool,
    /// The job's profile: a TOML file with the groups of ranks that the program asks for, and what
    /// they need.
    ///
    /// If the launcher's command line has no number of ranks and no hosts (isthmus run --profile
    /// job.toml -- mpirun ./app), isthmus starts the groups' ranks where they have what they need: on
    /// free nodes, or on nodes that it has batch schedulers give. --nodes and --pilots say which to
    /// choose from. `isthmus profile explain` says what a profile asks for.
    #[arg(long, value_name = "FILE", conflicts_with = "no_coll")]
    pub(super) profile: Option<PathBuf>,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// The command and its arguments.
    // Not allow_hyphen_values: it takes a misspelt option for the command.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
    /// What the profile says of the ranks.
    #[arg(skip)]
    pub(super) placed: Placed,
    // The last one: its heading is for all that follows.
    #[command(flatten)]
    pub(super) batch: BatchArgs,
}

/// Adds a tip to clap's error for an unknown option, which may be one of the launcher. clap's own
/// tip would take the option for the command.
pub fn explain(error: &mut clap::Error) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    error.remove(ContextKind::Suggested);
    if error.get(ContextKind::SuggestedArg).is_none() {
        let tip = "options of the launcher come behind it: isthmus run -- mpirun -n 4 ./app";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

impl RunArgs {
    /// Whether the command line names no nodes, nor schedulers for them.
    pub(crate) fn asks_for_no_nodes(&self) -> bool {
        self.nodes.is_empty() && self.batch.pilots.is_empty()
    }

    /// The nodes of batch schedulers that are asked for, by a process with this note.
    pub(crate) fn asking<'a>(&'a self, note: &'a notes::Own) -> Asking<'a> {
        let Self { batch, socket, quiet, nodes, .. } = self;
        Asking { batch, note, socket: socket.as_ref(), quiet: *quiet, beside: nodes }
    }
}

/// Reads the beginning of a job's id.
fn job_id(text: &str) -> Result<String, String> {
    let id = text.to_ascii_lowercase();
    let is_id = (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Ok(id) } else { Err("a job's id has hexadecimal digits; isthmus jobs shows it".to_owned()) }
}

/// Reads how long a job waits.
fn outlive(text: &str) -> Result<Duration, String> {
    const DAYS_30: Duration = Duration::from_secs(30 * 24 * 3600);
    let read = zero_or_seconds(text)?;
    if read <= DAYS_30 { Ok(read) } else { Err("a job waits for 30 days at most".to_owned()) }
}

/// Reads how long a start is tried again: whole seconds, or 0 for one try.
fn try_for(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let read = zero_or_seconds(text)?;
    if read <= DAY { Ok(read) } else { Err("a start is tried again for a day at most".to_owned()) }
}

/// Reads how long an agent may be silent.
fn patience(text: &str) -> Result<Duration, String> {
    let read = whole_seconds(text)?;
    if (DEFAULT..=LONGEST).contains(&read) { Ok(read) } else { Err("give 5s to 1m".to_owned()) }
}

fn zero_or_seconds(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { whole_seconds(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        use clap::Parser as _;

        for (line, want) in [
            ("mpirun -n 4 ./app --nodes x", Ok("mpirun -n 4 ./app --nodes x")),
            ("--quiet -- mpirun -n 4", Ok("mpirun -n 4")),
            ("-- --odd", Ok("--odd")),
            ("--each -- sh -c --", Ok("sh -c --")),
            ("--node n1.a -- mpirun", Err("--nodes")),
            ("-n 4 ./app", Err("-n")),
            ("", Err("COMMAND")),
            ("--nodes n1.a", Err("COMMAND")),
        ] {
            let words = std::iter::once("run").chain(line.split_whitespace());
            match (Cli::try_parse_from(words), want) {
                (Ok(cli), Ok(want)) => assert_eq!(cli.args.command.join(" "), want, "{line}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{line}: {error}"),
                (got, _) => panic!("{line}: {got:?}"),
            }
        }
    }

    #[test]
    fn blanks_between_nodes_are_left_out() {
        use clap::Parser as _;

        let cli = Cli::try_parse_from(["run", "--nodes", "n1.a, n1.b ,", "true"]).unwrap();
        assert_eq!(cli.args.nodes, ["n1.a", "n1.b", ""]);
    }

    #[test]
    fn what_is_no_time_gets_an_example() {
        for (text, want) in [
            ("soon", "give a time, such as 90s or 15m"),
            ("", "give a time, such as 90s or 15m"),
            ("-1m", "give a time, such as 90s or 15m"),
            ("15", "time unit needed"),
            ("15 x", "unknown time unit"),
        ] {
            let said = outlive(text).unwrap_err();
            assert!(said.contains(want), "{text}: {said}");
        }
    }

    #[test]
    fn how_long_an_agent_may_be_silent() {
        for (text, want) in [
            ("5s", Some(5)),
            ("20s", Some(20)),
            ("1m", Some(60)),
            ("4s", None),
            ("0", None),
            ("61s", None),
            ("5500ms", None),
        ] {
            assert_eq!(patience(text).ok(), want.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn how_long_a_start_is_tried_again() {
        for (text, want) in [
            ("0", Some(0)),
            ("30s", Some(30)),
            ("10m", Some(600)),
            ("1d", Some(86_400)),
            ("25h", None),
            ("1500ms", None),
        ] {
            assert_eq!(try_for(text).ok(), want.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn the_beginning_of_a_job_s_id() {
        for (text, want) in [
            ("5A1f", Some("5a1f")),
            ("0123456789abcdef0123456789abcdef", Some("0123456789abcdef0123456789abcdef")),
            ("0123456789abcdef0123456789abcdef0", None),
            ("", None),
            ("5a-1", None),
        ] {
            assert_eq!(job_id(text).ok().as_deref(), want, "{text}");
        }
    }

    #[test]
    fn how_long_a_job_waits() {
        for (text, want) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("2h 30m", Some(9000)),
            ("1500ms", None),
            ("15", None),
            ("-1m", None),
            ("31d", None),
        ] {
            assert_eq!(outlive(text).ok(), want.map(Duration::from_secs), "{text}");
        }
    }
}

//! Reading what Slurm's commands write. Pure functions.
//!
//! Formats are those that the commands have had since long before 22.05, and that have no version
//! of their own: fields of `squeue -o`, `sinfo -o`, `sacct -P`, and `scontrol show job -o`.

use std::time::SystemTime;

use isthmus_slurm::expand;

pub use super::nodes::{REASONS_FORMAT, SINFO_FORMAT, capacity, out_of_service};
use crate::state::End;

/// Fields of a line of `squeue` (squeue(1), `--format`): id, state, start, end, nodes, name, reason.
/// The last may be any text.
pub const SQUEUE_FORMAT: &str = "%i|%T|%S|%e|%N|%j|%r";
/// Fields of a line of `sacct` (sacct(1), `--format`).
pub const SACCT_FORMAT: &str = "JobIDRaw,State,ExitCode,JobName";

/// Where a job is, by the word that Slurm has for its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It waits.
    Pending,
    /// It runs.
    Running,
    /// It has nodes and doesn't run.
    Suspended,
    /// Its nodes aren't free yet.
    Ending,
    /// It has ended.
    Ended(End),
    /// A word that isn't known here.
    Other,
}

/// A line of `squeue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The job's number.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state, in Slurm's word.
    pub word: String,
    /// What that means.
    pub phase: Phase,
    /// When it started, or is expected to.
    pub start: Option<SystemTime>,
    /// When its time ends, or it ended.
    pub end: Option<SystemTime>,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Why it waits; empty if it doesn't.
    pub reason: String,
}

/// How a job ended, by the accounts or the controller's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The job's number.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it is; the accounts have running jobs, too.
    pub phase: Phase,
}

/// What a failed command says of its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A daemon doesn't answer.
    Unreachable,
    /// The controller answers, and has no such job.
    UnknownJob,
    /// The cluster keeps no accounts.
    NoAccounts,
    /// Something else.
    Other,
}

/// What a failed command says of its failure. The texts are those of slurm_errno.c, the same from
/// 2.6 to 24.11.
pub fn trouble(said: &str) -> Trouble {
    const UNREACHABLE: &[&str] = &[
        "Unable to contact slurm controller",
        "Unable to establish control",
        "Unable to establish configuration source",
        "Socket timed out",
        "Zero Bytes were transmitted",
        "Connection refused",
        "Connection timed out",
        "Connection reset",
        "No route to host",
        "in standby mode",
        "Transport endpoint is not connected",
        "temporarily unable to accept job",
        "Unable to connect to database",
        "Problem talking to the database",
        "Munge encode failed",
        "Sending PersistInit msg",
    ];
    if UNREACHABLE.iter().any(|text| said.contains(text)) {
        Trouble::Unreachable
    } else if said.contains("Invalid job id specified") {
        Trouble::UnknownJob
    } else if said.contains("accounting storage is disabled") {
        Trouble::NoAccounts
    } else {
        Trouble::Other
    }
}

/// The number of a submitted job: the last line of `sbatch --parsable`, `NUMBER` or
/// `NUMBER;CLUSTER`. A site's wrapper of sbatch may write before that.
///
/// # Errors
/// If there is no number.
pub fn job_id(out: &str) -> Result<String, String> {
    let line = out.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let id = line.split(';').next().unwrap_or_default();
    let number = (1..=20).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit());
    if number { Ok(id.to_owned()) } else { Err(format!("a job's number was expected: {:?}", cut(line))) }
}

/// The jobs that `squeue` lists by [`SQUEUE_FORMAT`].
///
/// # Errors
/// If a line isn't of that form.
pub fn queue(out: &str) -> Result<Vec<Queued>, String> {
    out.lines().filter(|line| !line.trim().is_empty()).map(queued).collect()
}

/// The nodes of a job, which are none as long as it waits.
fn hosts(list: &str) -> Result<Vec<String>, String> {
    if list.is_empty() { Ok(Vec::new()) } else { expand(list).map_err(|error| error.to_string()) }
}

fn queued(line: &str) -> Result<Queued, String> {
    let wrong = |what: &str| format!("{what} in {:?}", cut(line));
    let fields: Vec<_> = line.trim().splitn(7, '|').collect();
    let [id, word, start, end, nodes, name, reason] = fields[..] else {
        return Err(wrong("7 fields were expected"));
    };
    let time = |text| time(text).map_err(|what| wrong(&what));
    Ok(Queued {
        id: id.to_owned(),
        name: name.to_owned(),
        word: word.to_owned(),
        phase: phase(word, None),
        start: time(start)?,
        end: time(end)?,
        nodes: hosts(nodes).map_err(|what| wrong(&what))?,
        reason: if reason == "None" { String::new() } else { reason.to_owned() },
    })
}

/// The job that `scontrol show job -o` describes. Fields are looked for from the left, and those
/// that can have any text come after these.
///
/// # Errors
/// If fields are missing.
pub fn described(out: &str) -> Result<Account, String> {
    let field = |name: &str| {
        let mut words = out.split_ascii_whitespace();
        let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| format!("{name}= was expected in {:?}", cut(out)))
    };
    let exit = exit_code(field("ExitCode")?)?;
    Ok(Account {
        id: field("JobId")?.to_owned(),
        name: field("JobName")?.to_owned(),
        phase: phase(field("JobState")?, Some(exit)),
    })
}

/// The jobs that `sacct -P -n -X` lists by [`SACCT_FORMAT`].
///
/// # Errors
/// If a line isn't of that form.
pub fn accounts(out: &str) -> Result<Vec<Account>, String> {
    let account = |line: &str| {
        let fields: Vec<_> = line.trim().splitn(4, '|').collect();
        let [id, state, exit, name] = fields[..] else {
            return Err(format!("4 fields were expected in {:?}", cut(line)));
        };
        let phase = phase(state, Some(exit_code(exit)?));
        Ok(Account { id: id.to_owned(), name: name.to_owned(), phase })
    };
    out.lines().filter(|line| !line.trim().is_empty()).map(account).collect()
}

/// What Slurm's word for a job's state means (squeue(1), *JOB STATE CODES*). Behind `CANCELLED`,
/// the accounts have ` by UID`.
fn phase(word: &str, exit: Option<(u8, u8)>) -> Phase {
    let mut words = word.split_ascii_whitespace();
    let end = match words.next().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "POWER_UP_NODE" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD"
        | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => return Phase::Pending,
        "RUNNING" | "RESIZING" | "SIGNALING" => return Phase::Running,
        "SUSPENDED" | "STOPPED" => return Phase::Suspended,
        "COMPLETING" | "STAGE_OUT" => return Phase::Ending,
        "COMPLETED" => End::Completed,
        "FAILED" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => {
            let (status, signal) = exit.unwrap_or_default();
            End::Failed { status, signal }
        }
        // Behind the sign of a truncated field there may be a +.
        "CANCELLED" | "CANCELLED+" => {
            let user = words.nth(1).filter(|user| user.bytes().all(|byte| byte.is_ascii_digit()));
            End::Cancelled { by: user.map(str::to_owned) }
        }
        "TIMEOUT" => End::TimeLimit,
        "NODE_FAIL" | "BOOT_FAIL" => End::NodeFailure,
        "PREEMPTED" => End::Preempted,
        "OUT_OF_MEMORY" => End::OutOfMemory,
        "DEADLINE" => End::Other { said: "its deadline was reached".to_owned() },
        "REVOKED" => End::Other { said: "another cluster of the federation took it".to_owned() },
        _ => return Phase::Other,
    };
    Phase::Ended(end)
}

/// `STATUS:SIGNAL`.
fn exit_code(text: &str) -> Result<(u8, u8), String> {
    let wrong = || format!("STATUS:SIGNAL was expected: {:?}", cut(text));
    let (status, signal) = text.split_once(':').ok_or_else(wrong)?;
    Ok((status.parse().map_err(|_| wrong())?, signal.parse().map_err(|_| wrong())?))
}

/// When a job could start, from what `sbatch --test-only` says (to stderr); `None` if it says that
/// the job can't.
pub fn estimate(said: &str) -> Option<SystemTime> {
    let line = |line: &str| {
        let (_, rest) = line.split_once("Job ")?.1.split_once(" to start at ")?;
        time(rest.split_ascii_whitespace().next()?).ok()?
    };
    said.lines().find_map(line)
}

/// A time in UTC, such as `2026-11-28T20:56:11`; `None` if Slurm has none.
fn time(text: &str) -> Result<Option<SystemTime>, String> {
    match text {
        // squeue writes NONE for the end of a job without a time limit.
        "" | "N/A" | "Unknown" | "None" | "NONE" | "(null)" => Ok(None),
        _ if text.len() == 19 => {
            humantime::parse_rfc3339_weak(text).map(Some).map_err(|_| "a time was expected".to_owned())
        }
        _ => Err("a time was expected".to_owned()),
    }
}

/// The beginning of a text, for a message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

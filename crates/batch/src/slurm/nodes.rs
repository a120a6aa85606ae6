//! Reading what `sinfo` writes. Pure functions.

use std::time::Duration;

use super::parse::cut;
use crate::state::NodeClass;

/// Fields of a line of `sinfo` (sinfo(1), `--format`): partition, its state, its time limit, the
/// nodes' state and number, sockets, cores of a socket, CPUs, memory in MiB, CPUs by state, features.
pub const SINFO_FORMAT: &str = "%P|%a|%l|%T|%D|%X|%Y|%c|%m|%C|%f";
/// Fields of a line of `sinfo --list-reasons`: nodes, their state, why they are out of service. The last
/// may be any text.
pub const REASONS_FORMAT: &str = "%N|%T|%E";
/// Most groups of nodes out of service that a message names.
const NAMED: usize = 4;

/// A length of time: `[DAYS-]HOURS:MINUTES:SECONDS`, `MINUTES:SECONDS`; `None` if there is no limit.
fn length(text: &str) -> Result<Option<Duration>, String> {
    if matches!(text, "infinite" | "UNLIMITED" | "n/a" | "N/A") {
        return Ok(None);
    }
    let wrong = || format!("a length of time was expected: {:?}", cut(text));
    let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| wrong());
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let parts = rest.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    let seconds = match parts[..] {
        [hours, minutes, seconds] => hours * 3600 + minutes * 60 + seconds,
        [minutes, seconds] => minutes * 60 + seconds,
        _ => return Err(wrong()),
    };
    Ok(Some(Duration::from_secs(number(days)? * 86_400 + seconds)))
}

/// A count. Slurm shortens large round ones, such as `2K` for 2,048; a `+` says that some nodes
/// have more.
fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("a number was expected: {:?}", cut(text));
    let text = text.trim_end_matches('+');
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u32>().map(|number| u64::from(number) * unit).map_err(|_| wrong())
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| format!("a smaller number was expected: {:?}", cut(text)))
}

/// The classes of nodes that `sinfo -e` lists by [`SINFO_FORMAT`]. Lines that differ only in the
/// nodes' state are one class.
///
/// # Errors
/// If a line isn't of that form.
pub fn capacity(out: &str) -> Result<Vec<NodeClass>, String> {
    let mut classes: Vec<NodeClass> = Vec::new();
    for line in out.lines().filter(|line| !line.trim().is_empty()) {
        let Some(class) = class(line).map_err(|what| format!("{what} in {:?}", cut(line)))? else { continue };
        let alike = |other: &&mut NodeClass| {
            let counts = NodeClass {
                nodes: other.nodes,
                nodes_free: other.nodes_free,
                cores_free: other.cores_free,
                ..class.clone()
            };
            **other == counts
        };
        if let Some(other) = classes.iter_mut().find(alike) {
            other.nodes = other.nodes.saturating_add(class.nodes);
            other.nodes_free = other.nodes_free.saturating_add(class.nodes_free);
            other.cores_free = other.cores_free.saturating_add(class.cores_free);
        } else {
            classes.push(class);
        }
    }
    Ok(classes)
}

/// The nodes that are out of service, with state and reason, from what `sinfo --list-reasons` lists by
/// [`REASONS_FORMAT`]; empty if there are none. A line that isn't of that form is left out.
pub fn out_of_service(out: &str) -> String {
    let mut each = out.lines().filter_map(|line| {
        let fields: Vec<_> = line.trim().splitn(3, '|').collect();
        let [nodes, state, reason] = fields[..] else { return None };
        Some(format!("{} ({}: {})", cut(nodes), cut(state), cut(reason)))
    });
    let named: Vec<_> = each.by_ref().take(NAMED).collect();
    let others = if each.next().is_some() { ", and others" } else { "" };
    named.join(", ") + others
}

/// The class of one line; `None` if no job can go there.
fn class(line: &str) -> Result<Option<NodeClass>, String> {
    let fields: Vec<_> = line.trim().splitn(11, '|').collect();
    let [partition, available, limit, state, number, sockets, cores, cpus, memory, by_state, features] =
        fields[..]
    else {
        return Err("11 fields were expected".to_owned());
    };
    let (nodes, cpus) = (small(number)?, small(cpus)?);
    let cores = small(sockets)?.saturating_mul(small(cores)?);
    let idle = by_state.split('/').nth(1).ok_or("CPUs by state were expected")?;
    let (in_service, free) = service(state);
    if available != "up" || !in_service || nodes == 0 {
        return Ok(None);
    }
    // Slurm may know of fewer CPUs than cores, where it counts none of a node's other ones.
    let cores = if cores == 0 { cpus } else { cores.min(cpus) };
    let threads = u64::from(cpus.checked_div(cores).unwrap_or(1).max(1));
    let mut features: Vec<_> =
        features.split(',').filter(|feature| !matches!(*feature, "" | "(null)")).map(str::to_owned).collect();
    features.sort_unstable();
    features.dedup();
    Ok(Some(NodeClass {
        queue: Some(partition.trim_end_matches('*').to_owned()),
        default: partition.ends_with('*'),
        nodes,
        nodes_free: if free { nodes } else { 0 },
        cores,
        cores_free: count(idle)? / threads,
        memory_bytes: count(memory)?.saturating_mul(1 << 20),
        time: length(limit)?,
        features,
    }))
}

/// Whether nodes of this state are in service, and whether they run nothing (sinfo(1), *NODE STATE
/// CODES*). `*`: doesn't answer; `$` maintenance; `@ ^` restarts; `! %` goes to sleep; `~` sleeps and
/// wakes up for a job; `#` wakes up; `-` planned for a job.
fn service(state: &str) -> (bool, bool) {
    let word = state.trim_end_matches(|character: char| !character.is_ascii_alphabetic());
    let flags = &state[word.len()..];
    let away = flags.contains(['*', '$', '@', '^', '!', '%']);
    match word {
        "idle" => (!away, !away && !flags.contains('-')),
        "allocated" | "mixed" | "completing" | "reserved" | "planned" | "blocked" => (!away, false),
        _ => (false, false),
    }
}

//! Reading what Grid Engine's commands write. Pure functions.
//!
//! `qstat` and `qhost` write XML (their schemas come with Grid Engine); `qacct` and `qconf` write
//! names and values, one a line.

use std::collections::BTreeMap;
use std::time::SystemTime;

use roxmltree::{Document, Node, ParsingOptions};

use crate::state::{End, NodeClass};

/// Most parts of an XML document.
const MOST_NODES: u32 = 4_000_000;
/// Most messages of the scheduler that are shown for a job.
const MOST_MESSAGES: usize = 3;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits.
    Pending,
    /// It waits, and won't start until somebody has cleared its error.
    Error,
    /// It runs.
    Running,
    /// It has nodes and doesn't run.
    Suspended,
    /// It is being ended.
    Ending,
}

/// A job that `qstat` lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub phase: Phase,
    /// When it started.
    pub start: Option<SystemTime>,
    /// Its hosts, sorted.
    pub hosts: Vec<String>,
}

/// A parallel environment (sge_pe(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its name.
    pub name: String,
    /// `allocation_rule`: how many slots of a job each host has.
    pub rule: Rule,
    /// `control_slaves`: whether a job may start processes on its other hosts.
    pub control_slaves: bool,
}

/// How a parallel environment spreads slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// All on one host.
    One,
    /// This many on each host.
    Each(u32),
    /// In another way.
    Other,
}

fn document(text: &str) -> Result<Document<'_>, String> {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| format!("XML was expected: {error}"))
}

/// The text of a child.
fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children()
        .find(|child| child.has_tag_name(name))
        .map(|child| child.text().unwrap_or_default().trim())
}

fn required<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str, String> {
    text(node, name).ok_or_else(|| format!("{name} was expected in a {}", node.tag_name().name()))
}

/// A time in UTC; `None` if it isn't one.
fn time(text: &str) -> Option<SystemTime> {
    (text.len() == 19).then(|| humantime::parse_rfc3339_weak(text).ok()).flatten()
}

/// The host of a queue instance, `QUEUE@HOST`.
fn host_of(instance: &str) -> Option<(&str, &str)> {
    instance.rsplit_once('@').filter(|(queue, host)| !queue.is_empty() && !host.is_empty())
}

/// The jobs that `qstat -g t -xml` lists: a job that runs is there once for each slot.
///
/// # Errors
/// If it isn't what qstat writes.
pub fn jobs(out: &str) -> Result<Vec<Listed>, String> {
    let document = document(out)?;
    let mut jobs: BTreeMap<String, Listed> = BTreeMap::new();
    for node in document.descendants().filter(|node| node.has_tag_name("job_list")) {
        let id = required(node, "JB_job_number")?.to_owned();
        let letters = required(node, "state")?;
        let phase = phase(letters).ok_or_else(|| format!("a job's state was expected: {letters:?}"))?;
        let name = required(node, "JB_name")?.to_owned();
        let start = text(node, "JAT_start_time").and_then(time);
        let job = jobs.entry(id.clone()).or_insert(Listed { id, name, phase, start, hosts: Vec::new() });
        let host = text(node, "queue_name").and_then(host_of).map(|(_, host)| host.to_owned());
        job.hosts.extend(host);
    }
    let mut jobs: Vec<_> = jobs.into_values().collect();
    for job in &mut jobs {
        job.hosts.sort_unstable();
        job.hosts.dedup();
    }
    Ok(jobs)
}

/// What the letters of a job's state mean (qstat(1), *state*).
fn phase(letters: &str) -> Option<Phase> {
    let has = |letter| letters.contains(letter);
    if has('d') || has('z') {
        Some(Phase::Ending)
    } else if has('E') {
        Some(Phase::Error)
    } else if has('s') || has('S') || has('T') || has('N') {
        Some(Phase::Suspended)
    } else if has('w') {
        Some(Phase::Pending)
    } else if has('r') || has('t') {
        Some(Phase::Running)
    } else {
        None
    }
}

/// A job's name, and why it waits, from `qstat -j ID -xml`; `None` if there is no such job. The
/// reasons are there if the cluster has `schedd_job_info` (sched_conf(5)).
///
/// # Errors
/// If it isn't what qstat writes.
pub fn described(out: &str) -> Result<Option<(String, String)>, String> {
    // Before Grid Engine 8, this answer is no XML.
    if out.contains("<unknown_jobs") {
        return Ok(None);
    }
    let document = document(out)?;
    let all = |name: &'static str| {
        let found = document.descendants().filter(move |node| node.has_tag_name(name));
        found.filter_map(|node| node.text()).map(str::trim)
    };
    let name = all("JB_job_name").next().ok_or("JB_job_name was expected")?.to_owned();
    let errors = all("QIM_message");
    let messages =
        errors.chain(all("MES_message")).filter(|message| !message.contains("no messages available"));
    let reason = messages.take(MOST_MESSAGES).collect::<Vec<_>>().join("; ");
    Ok(Some((name, reason)))
}

/// The number of a submitted job, from `qsub -terse`.
///
/// # Errors
/// If there is none.
pub fn job_id(out: &str) -> Result<String, String> {
    let line = out.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    if (1..=20).contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(line.to_owned())
    } else {
        Err(format!("a job's number was expected: {:?}", cut(line)))
    }
}

/// How a job ended, from `qacct -j ID`; `None` if no account there is of this number and name. With
/// several accounts, as of parallel tasks, the last one is the job's.
pub fn account(out: &str, id: &str, name: &str) -> Option<End> {
    let accounts = out.split("==============================================================");
    let fields = |account: &str| -> BTreeMap<String, String> {
        let lines = account.lines().filter_map(|line| line.split_once(char::is_whitespace));
        lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    };
    let is = |fields: &BTreeMap<String, String>| {
        fields.get("jobnumber").is_some_and(|found| found == id)
            && fields.get("jobname").is_some_and(|found| found == name)
    };
    accounts.map(fields).filter(is).last().map(|fields| end(&fields))
}

/// What an account means (accounting(5)). `failed` 37 is a limit that the master enforced, 100 is a
/// signal by which the job ended.
fn end(fields: &BTreeMap<String, String>) -> End {
    let first = |name: &str| {
        let value = fields.get(name)?.split_ascii_whitespace().next()?;
        value.trim_end_matches('s').split('.').next()?.parse::<u64>().ok()
    };
    let limit = fields
        .get("category")
        .and_then(|asked| asked.split(['=', ' ', ',']).skip_while(|word| *word != "h_rt").nth(1));
    let limit = limit.and_then(|limit| limit.parse::<u64>().ok());
    let late = limit.is_some_and(|limit| first("ru_wallclock").is_some_and(|wall| wall >= limit));
    let status = first("exit_status").and_then(|status| u8::try_from(status).ok());
    match (first("failed"), status) {
        (Some(37), _) => End::TimeLimit,
        (Some(100), _) | (Some(0), Some(1..)) if late => End::TimeLimit,
        (Some(0 | 100), Some(0)) => End::Completed,
        (Some(0 | 100), Some(status @ 129..=192)) => End::Failed { status: 0, signal: status - 128 },
        (Some(0 | 100), Some(status)) => End::Failed { status, signal: 0 },
        _ => End::Other { said: fields.get("failed").map(|failed| cut(failed)).unwrap_or_default() },
    }
}

/// A parallel environment, from `qconf -sp NAME`; `None` if its name is missing.
pub fn environment(out: &str) -> Option<Environment> {
    let value = |name: &str| {
        let mut lines = out.lines().filter_map(|line| line.split_once(char::is_whitespace));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
    };
    let rule = match value("allocation_rule") {
        Some("$pe_slots") => Rule::One,
        Some(number) => number.parse().map_or(Rule::Other, Rule::Each),
        None => Rule::Other,
    };
    let control_slaves = value("control_slaves").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Some(Environment { name: value("pe_name")?.to_owned(), rule, control_slaves })
}

/// A host, from `qhost -F -xml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The names of the host's own complexes that are true.
    pub features: Vec<String>,
}

/// The hosts that `qhost -F -xml` lists, by name.
///
/// # Errors
/// If it isn't what qhost writes.
pub fn hosts(out: &str) -> Result<BTreeMap<String, Host>, String> {
    let document = document(out)?;
    let mut hosts = BTreeMap::new();
    for node in document.descendants().filter(|node| node.has_tag_name("host")) {
        let name = node.attribute("name").ok_or("a host without a name")?;
        let mut host = Host { memory_bytes: 0, features: Vec::new() };
        for value in node.children().filter(Node::is_element) {
            let (Some(key), Some(text)) = (value.attribute("name"), value.text()) else { continue };
            if value.has_tag_name("hostvalue") && key == "mem_total" {
                host.memory_bytes = bytes(text.trim()).unwrap_or(0);
            }
            // `hf`: of the host, and fixed by its owner (qhost(1)).
            let fixed = value.has_tag_name("resourcevalue") && value.attribute("dominance") == Some("hf");
            if fixed && matches!(text.trim(), "1" | "1.000000" | "TRUE" | "true") {
                host.features.push(key.to_owned());
            }
        }
        host.features.sort_unstable();
        host.features.dedup();
        hosts.insert(name.to_owned(), host);
    }
    Ok(hosts)
}

/// An amount of memory, such as `23.5G`; `None` if it isn't one.
fn bytes(text: &str) -> Option<u64> {
    let unit = match text.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        b'P' => 50,
        _ => 0,
    };
    let number = if unit == 0 { text } else { text.get(..text.len() - 1)? };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let scale = |digits: u64, shift: u32| digits.checked_mul(1 << shift);
    let tenths = part.bytes().take(3).chain(std::iter::repeat(b'0')).take(3);
    let thousandths = tenths
        .map(|byte| u64::from(byte.wrapping_sub(b'0')))
        .try_fold(0, |sum, digit| (digit < 10).then_some(sum * 10 + digit))?;
    scale(whole.parse().ok()?, unit)?.checked_add(scale(thousandths, unit)? / 1000)
}

/// The classes of nodes: queue instances of `qstat -f -xml` on hosts of `qhost -F -xml`. A core is a
/// slot.
///
/// # Errors
/// If it isn't what qstat writes.
pub fn capacity(out: &str, hosts: &BTreeMap<String, Host>) -> Result<Vec<NodeClass>, String> {
    let document = document(out)?;
    let mut classes: Vec<NodeClass> = Vec::new();
    for node in document.descendants().filter(|node| node.has_tag_name("Queue-List")) {
        let name = required(node, "name")?;
        let (queue, host) =
            host_of(name).ok_or_else(|| format!("QUEUE@HOST was expected: {:?}", cut(name)))?;
        let number = |name| {
            required(node, name)
                .and_then(|text| text.parse::<u32>().map_err(|_| format!("a number was expected as {name}")))
        };
        let (slots, used) = (number("slots_total")?, number("slots_used")?);
        let reserved = text(node, "slots_resv").and_then(|text| text.parse().ok()).unwrap_or(0);
        let state = text(node, "state").unwrap_or_default();
        let batch = text(node, "qtype").is_none_or(|kind| kind.contains('B') || kind.contains('P'));
        // Of the letters (qstat(1)), `a` and `A` are about load; others keep jobs away.
        if !batch || slots == 0 || state.contains(['u', 'd', 'D', 's', 'S', 'C', 'E', 'c', 'o']) {
            continue;
        }
        let free = if state.is_empty() { slots.saturating_sub(used).saturating_sub(reserved) } else { 0 };
        let host = hosts.get(host);
        let class = NodeClass {
            queue: Some(queue.to_owned()),
            default: true,
            nodes: 1,
            nodes_free: u32::from(free == slots),
            cores: slots,
            cores_free: u64::from(free),
            memory_bytes: host.map_or(0, |host| host.memory_bytes),
            time: None,
            features: host.map(|host| host.features.clone()).unwrap_or_default(),
        };
        let same = |other: &&mut NodeClass| {
            (&other.queue, other.cores, other.memory_bytes, &other.features)
                == (&class.queue, class.cores, class.memory_bytes, &class.features)
        };
        if let Some(other) = classes.iter_mut().find(same) {
            other.nodes += 1;
            other.nodes_free += class.nodes_free;
            other.cores_free += class.cores_free;
        } else {
            classes.push(class);
        }
    }
    Ok(classes)
}

/// Whether a command says that the master doesn't answer.
pub fn is_unreachable(said: &str) -> bool {
    const TEXTS: &[&str] = &[
        "commlib error",
        "unable to send message to qmaster",
        "unable to contact qmaster",
        "can't resolve host name",
        "got send error",
    ];
    TEXTS.iter().any(|text| said.contains(text))
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

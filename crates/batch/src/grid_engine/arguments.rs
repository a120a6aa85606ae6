//! Command lines and scripts for Grid Engine. Pure functions.

use std::num::NonZeroU32;
use std::path::Path;

use super::parse::{Environment, Rule};
use crate::Word;
use crate::pilot::Request;
use crate::script::quoted;

/// Whether a request needs a parallel environment: without one, a job has one slot.
pub(super) fn is_parallel(request: &Request) -> bool {
    cores(request) > 1 || request.nodes.get() > 1
}

fn cores(request: &Request) -> u32 {
    request.cores.map_or(1, NonZeroU32::get)
}

/// The first parallel environment that gives what is asked for: each node the same cores.
pub(super) fn environment(request: &Request, environments: &[Environment]) -> Option<Word> {
    let cores = cores(request);
    let gives = |environment: &&Environment| match environment.rule {
        Rule::One => request.nodes.get() == 1,
        Rule::Each(each) => each == cores && (request.nodes.get() == 1 || environment.control_slaves),
        Rule::Other => false,
    };
    environments.iter().find(gives)?.name.parse().ok()
}

/// The options of `qsub` for what is asked for (qsub(1)).
pub(super) fn requested(request: &Request, environment: Option<&Word>) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    if let Some(environment) = environment {
        let slots = u64::from(request.nodes.get()) * u64::from(cores(request));
        add("-pe", environment.to_string());
        add("-R", "y".to_owned());
        // The number of slots is a word of its own behind the name.
        options.insert(2, slots.to_string());
    }
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    if let Some(time) = request.time {
        add("-l", format!("h_rt={}", (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)));
    }
    if let Some(bytes) = request.memory_bytes {
        add("-l", format!("mem_free={}M", bytes.div_ceil(1 << 20)));
    }
    for tag in &request.tags {
        add("-l", format!("{tag}=TRUE"));
    }
    for (option, value) in [("-q", &request.queue), ("-P", &request.account), ("-ar", &request.reservation)] {
        if let Some(value) = value {
            add(option, value.to_string());
        }
    }
    options
}

/// The options of `qsub` for a pilot. Its script comes on standard input.
pub(super) fn submission(name: &Word, log: &Path) -> Vec<String> {
    // `-w e`: what no queue can ever run is refused. `-r n`: it isn't run again after a crash.
    let options =
        ["-terse", "-N", name.as_str(), "-S", "/bin/sh", "-V", "-r", "n", "-w", "e", "-j", "y", "-o"];
    options.into_iter().map(str::to_owned).chain([log.display().to_string()]).collect()
}

/// The batch script, which Grid Engine runs on the first of the job's hosts: it runs the file `node`
/// on each (sge_pe(5): the first line of `$PE_HOSTFILE` is that host). If `node` ends in disorder on one of
/// them, or can't be run there, the job ends. Its log says why, as `node` itself would; not if a signal was
/// the reason, as the end of the whole job is.
pub(super) fn batch_script(node: &Path) -> String {
    let node = quoted(&node.to_string_lossy());
    format!(
        r#"#!/bin/sh
# The user's PATH may lack Grid Engine's programs.
PATH="$PATH${{SGE_BINARY_PATH:+:$SGE_BINARY_PATH}}${{SGE_ROOT:+:$SGE_ROOT/bin/$ARC}}"
others= first=yes
sh {node} &
own=$!
trap 'kill -TERM "$own"; wait "$own"; exit 1' TERM
other() {{
    qrsh -inherit -nostdin "$1" /bin/sh {node} </dev/null && return
    status=$?
    [ "$status" -gt 128 ] ||
        echo "{{\"failed\":{{\"host\":\"$1\",\"reason\":\"qrsh ended with status $status\"}}}}"
    kill -TERM $$
    return "$status"
}}
if [ -f "$PE_HOSTFILE" ]; then
    while read -r host rest; do
        if [ -n "$first" ]; then first=; continue; fi
        other "$host" &
        others="$others $!"
    done <"$PE_HOSTFILE"
fi
wait "$own"
status=$?
[ "$status" = 0 ] || exit "$status"
for other in $others; do wait "$other" || status=$?; done
exit "$status"
"#
    )
}

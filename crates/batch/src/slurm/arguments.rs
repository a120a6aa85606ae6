//! Command lines and scripts for Slurm. Pure functions.

use std::path::Path;

use crate::Word;
use crate::pilot::Request;
use crate::script::quoted;

/// The options of `sbatch` for what is asked for (sbatch(1)).
pub(super) fn requested(request: &Request) -> Vec<String> {
    let mut options = vec![format!("--nodes={}", request.nodes), "--ntasks-per-node=1".to_owned()];
    let mut add = |name: &str, value: String| options.push(format!("--{name}={value}"));
    if let Some(cores) = request.cores {
        add("cpus-per-task", cores.to_string());
        // Cores are asked for, not hardware threads.
        add("hint", "nomultithread".to_owned());
    }
    if let Some(bytes) = request.memory_bytes {
        // 0 would ask for all memory of a node.
        add("mem", format!("{}M", bytes.div_ceil(1 << 20).max(1)));
    }
    if let Some(time) = request.time {
        // Slurm rounds to minutes, and 0 would ask for no limit.
        add("time", time.as_secs().div_ceil(60).max(1).to_string());
    }
    if !request.tags.is_empty() {
        add("constraint", request.tags.iter().map(Word::as_str).collect::<Vec<_>>().join("&"));
    }
    for (name, value) in
        [("partition", &request.queue), ("reservation", &request.reservation), ("account", &request.account)]
    {
        if let Some(value) = value {
            add(name, value.to_string());
        }
    }
    options
}

/// The options of `sbatch` for a pilot. Its script comes on standard input.
pub(super) fn submission(name: &Word, request: &Request, log: &Path) -> Vec<String> {
    let mut options = vec![
        "--parsable".to_owned(),
        format!("--job-name={name}"),
        // A pilot that lost a node ends: whoever asked for it learns of that, and asks anew.
        "--no-requeue".to_owned(),
        "--export=ALL".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--output={}", log.display()),
    ];
    options.append(&mut requested(request));
    options
}

/// The batch script, which Slurm runs on the first node: it runs `script` on each node. A node
/// whose script fails ends the pilot.
pub(super) fn batch_script(request: &Request, script: &str) -> String {
    let nodes = request.nodes;
    let cores = request.cores.map(|cores| format!(" --cpus-per-task={cores}")).unwrap_or_default();
    format!(
        "#!/bin/sh\nexec srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1{cores} --kill-on-bad-exit=1 \
         --mpi=none sh -c {}\n",
        quoted(script)
    )
}

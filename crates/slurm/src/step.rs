//! The job step by which a command runs once on each of some nodes of the own job (srun(1)).

/// Variables by which sbatch(1) and salloc(1) have srun take the job's own options: they would give
/// the step other tasks, or only a part of a node (srun(1), "INPUT ENVIRONMENT VARIABLES").
pub const LEFT_OUT: [&str; 24] = [
    "SLURM_CPU_BIND",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_HINT",
    "SLURM_JOB_NAME",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_LABELIO",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_MULTI_PROG",
    "SLURM_NCORES_PER_SOCKET",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RELATIVE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_THREADS_PER_CORE",
    "SLURM_WAIT",
];

/// srun's arguments for one task on each of these nodes of the job. Each task may use all that the
/// job has of its node, beside the job's other steps. It outlives the tasks of other nodes. All tasks
/// read srun's standard input.
pub fn arguments(job: u32, hosts: &[&str]) -> Vec<String> {
    let count = hosts.len();
    vec![
        format!("--jobid={job}"),
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--nodelist={}", hosts.join(",")),
        "--overlap".to_owned(),
        "--mem=0".to_owned(),
        "--cpu-bind=none".to_owned(),
        "--mpi=none".to_owned(),
        "--kill-on-bad-exit=0".to_owned(),
        "--wait=0".to_owned(),
        "--input=all".to_owned(),
        "--job-name=isthmus".to_owned(),
        "--quiet".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_one_task_on_each_node() {
        let arguments = arguments(17, &["n2", "n3"]);
        for want in ["--jobid=17", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n2,n3"] {
            assert!(arguments.iter().any(|argument| argument == want), "{want}: {arguments:?}");
        }
    }
}

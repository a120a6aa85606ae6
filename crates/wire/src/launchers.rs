//! The programs of MPIs that start ranks, by which agent and shim know them.

/// The daemons that launchers start on nodes; a daemon's end ends its ranks.
pub const DAEMONS: [&str; 3] = ["orted", "prted", "hydra_pmi_proxy"];
/// The launchers, which start ranks on their own node themselves, or daemons. A scheduler
/// may have started them as a rank of its own.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "prte"];

/// Whether a program, by its name, starts ranks and is none.
pub fn starts_ranks(program: &str) -> bool {
    let stem = program.split('.').next().unwrap_or_default();
    DAEMONS.contains(&program) || LAUNCHERS.contains(&stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_start_ranks_are_none() {
        for (program, want) in [
            ("orted", true),
            ("hydra_pmi_proxy", true),
            ("mpirun.openmpi", true),
            ("prterun", true),
            ("lmp", false),
            ("mpirunner", false),
        ] {
            assert_eq!(starts_ranks(program), want, "{program}");
        }
    }
}

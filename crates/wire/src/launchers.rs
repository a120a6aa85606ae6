//! The programs of MPIs that start ranks, by which agent and shim know them.

/// The daemons that launchers start on nodes. When a daemon ends, its ranks end.
pub const DAEMONS: [&str; 3] = ["orted", "prted", "hydra_pmi_proxy"];
/// The launchers. A launcher starts ranks on its own node itself, and daemons on others. A
/// scheduler may have started a launcher as a rank of its own.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "prte"];

/// Whether a program, by its name, starts ranks and isn't a rank itself.
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

//! Options of a launcher by which it would start its daemons past the agents, as by ssh: a pure
//! decision. isthmus sets variables that name what starts daemons. A launcher's options go before
//! its variables.

use super::mpi::Launcher;
use super::preflight::{Finding, Weight};
use super::programs;

/// Parameters of Open MPI that name the component that starts daemons.
const COMPONENTS: [&str; 1] = ["plm"];
/// Parameters of Open MPI that name what the component has in place of ssh.
const AGENTS: [&str; 4] = ["plm_rsh_agent", "plm_ssh_agent", "orte_rsh_agent", "pls_rsh_agent"];
/// The components of Open MPI that isthmus sets, under both of their names.
const RSH: [&str; 2] = ["rsh", "ssh"];
/// Options of Hydra that name what starts proxies. The second name is a former one.
const LAUNCHERS: [&str; 2] = ["launcher", "bootstrap"];
/// Options of Hydra that name what it has in place of ssh. The second name is a former one.
const PROGRAMS: [&str; 2] = ["launcher-exec", "bootstrap-exec"];

/// Findings on options that keep the launcher from starting ranks on other nodes. To be called only
/// if there are other nodes.
pub(super) fn findings(launcher: Launcher, arguments: &[String]) -> Vec<Finding> {
    let given = programs::options(arguments);
    let replaces = given.iter().filter(|option| match launcher {
        Launcher::OpenMpi4 | Launcher::OpenMpi5 => {
            option.names_parameter() && is_past_agents(option.value(0), option.value(1))
        }
        Launcher::Mpich => {
            let is_other = !RSH.contains(&option.value(0));
            PROGRAMS.contains(&option.name) || (LAUNCHERS.contains(&option.name) && is_other)
        }
    });
    let finding = |option: &programs::Given<'_>| Finding {
        node: String::new(),
        what: format!("{option} has {launcher} start ranks past isthmus, whose agents start them"),
        remedy: "leave the option out",
        weight: Weight::Fatal,
    };
    replaces.map(finding).collect()
}

fn is_past_agents(parameter: &str, value: &str) -> bool {
    let is_other = || !value.split(',').any(|component| RSH.contains(&component.trim()));
    AGENTS.contains(&parameter) || (COMPONENTS.contains(&parameter) && is_other())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_start_ranks_past_the_agents_are_named() {
        use Launcher::{Mpich, OpenMpi4, OpenMpi5};
        for (launcher, line, want) in [
            (OpenMpi4, "-n 4 ./app", ""),
            (OpenMpi4, "--mca btl self,tcp -n 4 ./app", ""),
            (OpenMpi4, "--mca plm_rsh_agent ssh -n 4 ./app", "--mca plm_rsh_agent ssh"),
            (OpenMpi4, "-n 4 -mca plm_rsh_agent /usr/bin/rsh ./app", "-mca plm_rsh_agent /usr/bin/rsh"),
            (OpenMpi4, "-n 2 ./a : --gmca plm slurm -n 2 ./b", "--gmca plm slurm"),
            (OpenMpi4, "--mca plm rsh -n 4 ./app", ""),
            (OpenMpi4, "--mca plm_rsh_no_tree_spawn 1 -n 4 ./app", ""),
            (OpenMpi5, "--prtemca plm_ssh_agent ssh -n 4 ./app", "--prtemca plm_ssh_agent ssh"),
            (OpenMpi5, "--prtemca plm ssh -n 4 ./app", ""),
            // What follows the program is its own.
            (OpenMpi4, "-n 4 ./app --mca plm_rsh_agent ssh", ""),
            (OpenMpi4, "-launcher-exec ssh -n 4 ./app", ""),
            (Mpich, "-launcher-exec ssh -n 4 ./app", "-launcher-exec ssh"),
            (Mpich, "--launcher-exec=ssh -n 4 ./app", "--launcher-exec=ssh"),
            (Mpich, "-bootstrap-exec /usr/bin/ssh ./app", "-bootstrap-exec /usr/bin/ssh"),
            (Mpich, "-launcher ssh -n 4 ./app", ""),
            (Mpich, "-launcher fork -n 4 ./app", "-launcher fork"),
            (Mpich, "-bootstrap slurm -n 4 ./app", "-bootstrap slurm"),
            (Mpich, "-f mine -launcher slurm -n 4 ./app", "-launcher slurm"),
        ] {
            let arguments: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            let found = findings(launcher, &arguments);
            assert!(found.iter().all(|finding| finding.weight == Weight::Fatal), "{line}");
            let named = found.first().and_then(|finding| finding.what.split_once(" has "));
            assert_eq!(named.map_or("", |(option, _)| option), want, "{launcher}: {line}");
            assert!(found.len() <= 1, "{line}");
        }
    }
}

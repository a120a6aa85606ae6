//! The settings of each MPI's launcher: environment variables only, all in this
//! file. docs/mpi.md explains them.

use std::fmt;
use std::path::Path;

use isthmus_agent::jobs::job_directory::{HOSTS, HYDRA_HOSTS, LAUNCHER};
use isthmus_wire::proto::JobNode;

/// An MPI's launcher that isthmus supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// Open MPI 4.1, whose launcher is ORTE's.
    OpenMpi4,
    /// Open MPI 5, whose launcher is PRRTE's.
    OpenMpi5,
    /// MPICH 4 or 5, whose launcher is Hydra.
    Mpich,
}

impl fmt::Display for Launcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OpenMpi4 => "Open MPI 4",
            Self::OpenMpi5 => "Open MPI 5",
            Self::Mpich => "MPICH",
        })
    }
}

/// Why a launcher can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LauncherError {
    /// A launcher that isthmus doesn't support yet.
    #[error("{0} is not supported yet: use the mpirun or mpiexec of Open MPI 4.1 or 5, or of MPICH 4 or 5")]
    Unsupported(String),
    /// The program's name is that of a launcher, and its version is unknown.
    #[error(
        "the MPI of {program} is unknown: `{program} --version` prints {version:?}; Open MPI 4.1 and 5, and MPICH 4 and 5 are supported"
    )]
    Unknown {
        program: String,
        /// The first line that `--version` prints.
        version: String,
    },
}

/// Whether a command is an MPI's launcher, by its name.
pub(crate) fn looks_like_launcher(program: &str) -> bool {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    matches!(stem, "mpirun" | "mpiexec" | "orterun" | "prterun" | "srun")
}

/// Which MPI's launcher a program is, by the output of `--version`.
///
/// # Errors If isthmus supports no launcher of this version.
pub(crate) fn identify(program: &str, version: &str) -> Result<Launcher, LauncherError> {
    let first = version.lines().next().unwrap_or_default().trim();
    if version.contains("HYDRA") {
        return Ok(Launcher::Mpich);
    }
    if let Some((_, number)) = version.split_once("(Open MPI) ").or_else(|| version.split_once("(OpenRTE) "))
    {
        return match number.split('.').next() {
            Some("4") => Ok(Launcher::OpenMpi4),
            Some("5") => Ok(Launcher::OpenMpi5),
            _ => Err(LauncherError::Unsupported(format!(
                "Open MPI {}",
                number.lines().next().unwrap_or_default().trim()
            ))),
        };
    }
    // Where Slurm isn't configured, srun prints an error only.
    if first.starts_with("slurm") || first.starts_with("srun: ") {
        return Err(LauncherError::Unsupported("srun".to_owned()));
    }
    Err(LauncherError::Unknown { program: program.to_owned(), version: first.to_owned() })
}

/// Variables for all launchers at once: a script may call any. A variable that the
/// user has set stays, unless ranks couldn't start with it.
pub(super) fn environment(job_directory: &Path) -> Vec<Variable> {
    let file = |name: &str| job_directory.join(name).to_string_lossy().into_owned();
    vec![
        // Open MPI 4: ORTE.
        Variable::fixed("OMPI_MCA_plm", "rsh"),
        Variable::fixed("OMPI_MCA_plm_rsh_agent", file(LAUNCHER)),
        Variable::fixed("OMPI_MCA_orte_default_hostfile", file(HOSTS)),
        // Within a Slurm allocation, its nodes would go before the host file.
        Variable::default("OMPI_MCA_ras", "^slurm"),
        // n1.alpha and n1.beta are two nodes.
        Variable::fixed("OMPI_MCA_orte_keep_fqdn_hostnames", "1"),
        // Open MPI 5: PRRTE and PMIx; each has its own setting for names.
        Variable::fixed("PRTE_MCA_plm", "ssh"),
        Variable::fixed("PRTE_MCA_plm_ssh_agent", file(LAUNCHER)),
        Variable::fixed("PRTE_MCA_prte_default_hostfile", file(HOSTS)),
        Variable::default("PRTE_MCA_ras", "^slurm"),
        Variable::fixed("PRTE_MCA_prte_keep_fqdn_hostnames", "1"),
        Variable::fixed("PMIX_MCA_pmix_keep_fqdn_hostnames", "1"),
        // Both versions of Open MPI: sockets between nodes, shared memory within one ("vader" is an
        // old name of "sm" that both know).
        Variable::default("OMPI_MCA_pml", "ob1"),
        Variable::default("OMPI_MCA_btl", "self,vader,tcp"),
        // Open MPI 4's osc/rdma, which it prefers, can't make windows over btl
        // tcp; it is the only one that Open MPI 5 has for that.
        Variable::default("OMPI_MCA_osc", "^ucx"),
        Variable::default("OMPI_MCA_osc_rdma_priority", "1"),
        // MPICH: Hydra.
        Variable::fixed("HYDRA_LAUNCHER", "ssh"),
        Variable::fixed("HYDRA_LAUNCHER_EXEC", file(LAUNCHER)),
        Variable::fixed("HYDRA_HOST_FILE", file(HYDRA_HOSTS)),
        // Sockets between nodes; UCX has no port names over tcp.
        Variable::default("MPIR_CVAR_CH4_NETMOD", "ofi"),
        Variable::default("FI_PROVIDER", "tcp"),
        // MPICH asks libfabric to confirm each send, so that MPI_Send would take a round trip. What
        // libfabric copies is sent at once. The limit is that of Open MPI's btl tcp.
        Variable::default("FI_TCP_MAX_INJECT", "65536"),
    ]
}

/// The host file of Open MPI.
pub(super) fn hosts(nodes: &[JobNode]) -> String {
    nodes.iter().map(|node| format!("{} slots={}\n", node.name, node.slots)).collect()
}

/// The host file of Hydra.
pub(crate) fn hydra_hosts(nodes: &[JobNode]) -> String {
    nodes.iter().map(|node| format!("{}:{}\n", node.name, node.slots)).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub name: &'static str,
    pub value: String,
    /// Whether the user's own value goes before this one.
    pub yields: bool,
}

impl Variable {
    fn fixed(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), yields: false }
    }

    fn default(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), yields: true }
    }
}

/// The number of ranks on a command line, summed over its contexts (`-n 2 a : -n 4 b`); `None` if
/// it isn't given. Only a context's first number counts: a program may have an option `-n` of its
/// own.
pub(super) fn ranks(arguments: &[String]) -> Option<u64> {
    let (mut total, mut given) = (None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "-n" | "-np" | "--n" | "--np" | "-c" => words.next().cloned(),
            other => ["--np=", "-np=", "--n=", "-n="]
                .iter()
                .find_map(|prefix| other.strip_prefix(prefix))
                .map(ToOwned::to_owned),
        };
        if let Some(count) = value.and_then(|value| value.parse::<u64>().ok()).filter(|_| !given) {
            total = Some(total.unwrap_or(0_u64).saturating_add(count));
            given = true;
        }
        given &= word != ":";
        // The program's own arguments follow `--`.
        if word == "--" {
            break;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_name() {
        for (program, want) in [
            ("mpirun", true),
            ("/usr/bin/mpirun.openmpi", true),
            ("mpiexec.hydra", true),
            ("srun", true),
            ("python3", false),
            ("./mpirunner", false),
        ] {
            assert_eq!(looks_like_launcher(program), want, "{program}");
        }
    }

    fn unsupported(what: &str) -> String {
        LauncherError::Unsupported(what.to_owned()).to_string()
    }

    #[test]
    fn launchers_are_recognised_by_version() {
        for (version, want) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Ok(Launcher::OpenMpi4)),
            ("mpiexec (OpenRTE) 4.1.4\n", Ok(Launcher::OpenMpi4)),
            ("HYDRA build details:\n    Version:    5.0.2\n", Ok(Launcher::Mpich)),
            ("mpirun (Open MPI) 5.0.8\n", Ok(Launcher::OpenMpi5)),
            ("mpirun (Open MPI) 3.1.3\n", Err(unsupported("Open MPI 3.1.3"))),
            ("slurm 23.02", Err(unsupported("srun"))),
            ("srun: error: fetch_config: DNS SRV lookup failed", Err(unsupported("srun"))),
        ] {
            assert_eq!(identify("mpirun", version).map_err(|error| error.to_string()), want, "{version}");
        }
        assert!(identify("mpirun", "LAM 7").unwrap_err().to_string().contains("\"LAM 7\""));
    }

    #[test]
    fn ranks_are_counted_over_contexts() {
        let words = |line: &str| line.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        for (line, want) in [
            ("-n 4 ./app", Some(4)),
            ("-np 2 ./a : -np 3 ./b", Some(5)),
            ("--np=8 ./app", Some(8)),
            ("-n 4 ./app -n 100 : -n 2 ./b -np 3", Some(6)),
            ("./app", None),
            ("-n x ./app", None),
        ] {
            assert_eq!(ranks(&words(line)), want, "{line}");
        }
    }

    #[test]
    fn slurm_s_nodes_are_not_used_unless_the_user_wants_them() {
        let environment = environment(Path::new("/tmp/isthmus-x"));
        for name in ["OMPI_MCA_ras", "PRTE_MCA_ras"] {
            let found = environment.iter().find(|variable| variable.name == name).unwrap();
            assert_eq!((found.value.as_str(), found.yields), ("^slurm", true), "{name}");
        }
    }

    #[test]
    fn host_files() {
        let nodes = [JobNode { name: "n1.alpha".to_owned(), virtual_address: 0, slots: 2 }];
        assert_eq!(hosts(&nodes), "n1.alpha slots=2\n");
        assert_eq!(hydra_hosts(&nodes), "n1.alpha:2\n");
    }
}

//! The MPIs, each run as one job of isthmus and, for reference, as people run
//! it today: over ssh, with the same transports.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use isthmus_lab::grid::Slow;

use crate::grid::{Node, target, words};

/// How long a rank that waits sleeps before it looks again, as described. On average it sees a message
/// half of that late, which is 0.1 % of a crossing between sites. With 32 ranks on a core that only
/// yielded, small collectives took up to twice as long.
const PAUSE: Duration = Duration::from_micros(12);

/// The MPI of a measured job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mpi {
    /// Open MPI 4.1, of the system.
    Openmpi,
    /// Open MPI 5, from target/openmpi5.
    Openmpi5,
    /// MPICH 4, of the system.
    Mpich4,
    /// MPICH 5, from target/mpich.
    Mpich,
}

impl Mpi {
    /// The MPI's name in reports.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Openmpi => "Open MPI 4",
            Self::Openmpi5 => "Open MPI 5",
            Self::Mpich4 => "MPICH 4",
            Self::Mpich => "MPICH 5",
        }
    }

    /// The MPI's launcher, a name or a path.
    pub(crate) fn launcher(self) -> String {
        match self {
            Self::Openmpi => "mpirun.openmpi".to_owned(),
            Self::Openmpi5 => target().join("openmpi5/bin/mpirun").display().to_string(),
            Self::Mpich4 => "mpirun.mpich".to_owned(),
            Self::Mpich => target().join("mpich/bin/mpiexec").display().to_string(),
        }
    }

    /// Path of a program of apps/ that was built with the MPI.
    ///
    /// # Errors
    /// The program isn't built.
    pub(crate) fn program(self, name: &str) -> anyhow::Result<String> {
        let directory = match self {
            Self::Openmpi => "openmpi",
            Self::Openmpi5 => "openmpi5",
            Self::Mpich4 => "mpich4",
            Self::Mpich => "mpich",
        };
        let path = target().join("apps").join(directory).join(name);
        ensure!(path.is_file(), "{} is not there: run `make apps`", path.display());
        Ok(path.display().to_string())
    }

    /// Options of the launcher with and without isthmus. Ranks are placed on the nodes in turns,
    /// even if a node gets more than it has slots. All nodes share the cores of this machine. So no
    /// rank is bound to a core, and waiting ranks let others run where the MPI knows how.
    pub(crate) fn on_shared_cores(self) -> Vec<String> {
        words(match self {
            Self::Openmpi => "--map-by node --oversubscribe --bind-to none --mca mpi_yield_when_idle 1",
            Self::Openmpi5 => "--map-by node:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1",
            Self::Mpich4 | Self::Mpich => "-ppn 1",
        })
    }

    /// Options of the launcher with and without isthmus, with which ranks fill a node after the
    /// other. All nodes share the cores of this machine, as with
    /// [`on_shared_cores`](Self::on_shared_cores).
    pub(crate) fn in_blocks(self) -> Vec<String> {
        words(match self {
            Self::Openmpi => "--map-by slot --oversubscribe --bind-to none --mca mpi_yield_when_idle 1",
            Self::Openmpi5 => "--map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1",
            Self::Mpich4 | Self::Mpich => "",
        })
    }

    /// Whether ranks that wait can let others run. Those of other MPIs poll, and slow each other by
    /// chance where there are more of them than cores.
    pub(crate) fn can_yield(self) -> bool {
        self != Self::Mpich4
    }

    /// Further options of the launcher with and without isthmus, for more ranks than cores: ranks
    /// that wait let others run. Open MPI's do already. Those of MPICH 5 sleep now and then.
    pub(crate) fn yielding(self) -> Vec<String> {
        words(match self {
            Self::Openmpi | Self::Openmpi5 | Self::Mpich4 => "",
            Self::Mpich => {
                "-genv MPIR_CVAR_CH4_PROGRESS_THROTTLE 1 \
                 -genv MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT 16"
            }
        })
    }

    /// The command line of such a program. In slow motion it is told how long its ranks sleep before they
    /// look again (`apps/pause.h`).
    ///
    /// # Errors
    /// The program has not been built.
    pub(crate) fn pausing(self, name: &str, slow: Slow) -> anyhow::Result<String> {
        let program = self.program(name)?;
        if slow.is_none() {
            return Ok(program);
        }
        Ok(format!("env PAUSE={} {program}", slow.time(PAUSE).as_secs_f64()))
    }

    /// Further options of the launcher without isthmus: the nodes, ssh, and the transports that
    /// isthmus would set.
    pub(crate) fn over_ssh(self, ssh: &Path, nodes: &[Node], slots: u32) -> Vec<String> {
        let hosts =
            nodes.iter().map(|node| format!("{}:{slots}", node.address)).collect::<Vec<_>>().join(",");
        let ssh = ssh.display().to_string();
        let options: Vec<&str> = match self {
            Self::Openmpi => vec![
                "--host",
                &hosts,
                "--mca",
                "plm_rsh_agent",
                &ssh,
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "self,vader,tcp",
            ],
            Self::Openmpi5 => vec![
                "--host",
                &hosts,
                "--prtemca",
                "plm_ssh_agent",
                &ssh,
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "self,sm,tcp",
            ],
            Self::Mpich4 | Self::Mpich => vec![
                "-hosts",
                &hosts,
                "-launcher",
                "ssh",
                "-launcher-exec",
                &ssh,
                "-genv",
                "MPIR_CVAR_CH4_NETMOD",
                "ofi",
                "-genv",
                "FI_PROVIDER",
                "tcp",
            ],
        };
        options.into_iter().map(ToOwned::to_owned).collect()
    }
}

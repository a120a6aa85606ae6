//! Runs the measuring program, with the library's collectives in it, under SimGrid's MPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::platform::Platform;
use isthmus_lab::grid::Slow;

use crate::grid::target;
use crate::mpi::Mpi;

/// Longest time of a simulation, after which it is ended.
const DEADLINE: Duration = Duration::from_secs(3600);

/// The MPI whose algorithms the simulated MPI has, under the library (mpi/smpi/own.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selection {
    Openmpi,
    Mpich,
}

impl Selection {
    pub(crate) const ALL: [Self; 2] = [Self::Openmpi, Self::Mpich];

    /// The selection's name in the results.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Openmpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// The MPI in the lab that the selection stands for.
    pub(super) fn mpi(self) -> Mpi {
        match self {
            Self::Openmpi => Mpi::Openmpi,
            Self::Mpich => Mpi::Mpich,
        }
    }

    /// The family that the library takes the MPI for. The library's own choice depends on it.
    fn family(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }
}

/// SimGrid's settings. Without the first setting, no message is sent before
/// its receiver asks, and the MPI's own collectives look wrongly bad. SimGrid's default factors
/// would multiply latencies, also of the wide area. Messages above 64 KiB wait for a round trip, as
/// those of both MPIs do: three latencies, not one. SimGrid's own algorithms are only for what precedes the
/// measured calls. The plain ones have no communicator of nodes, whose making sends 4 million messages
/// among 2,000 ranks.
pub(super) fn settings(platform: &Platform) -> Vec<String> {
    [
        "smpi/async-small-thresh:65536",
        "smpi/lat-factor:0:1;65537:3",
        &format!("smpi/bw-factor:0:{:.5}", platform.share),
        "smpi/simulate-computation:no",
        "smpi/auto-shared-malloc-thresh:262144",
        "smpi/coll-selector:default",
        "network/crosstraffic:0",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What the program prints for an operation and a size.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Times {
    pub operation: String,
    pub bytes: u64,
    ours_least_us: f64,
    native_least_us: f64,
    /// Whether the program's calls went to the library.
    interposed: bool,
}

impl Times {
    /// The times as they would be without slow motion.
    pub(super) fn described(self, slow: Slow) -> Self {
        let [ours_least_us, native_least_us] =
            [self.ours_least_us, self.native_least_us].map(|us| slow.as_described(us));
        Self { ours_least_us, native_least_us, ..self }
    }

    /// The least times of the library and of the MPI's own, in milliseconds.
    pub(super) fn milliseconds(&self) -> [f64; 2] {
        [self.ours_least_us / 1e3, self.native_least_us / 1e3]
    }
}

/// Operations, each with its sizes in bytes.
pub(super) type Cases<'a> = [(&'static str, &'a [u64])];

/// Reads the lines of a program that measured these cases.
///
/// # Errors
/// A line is missing, or the library wasn't in the program.
pub(super) fn read_times(output: &str, cases: &Cases<'_>) -> anyhow::Result<Vec<Times>> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    let times: Vec<Times> = lines
        .map(|line| serde_json::from_str(line).with_context(|| format!("cannot read {line:?}")))
        .collect::<Result<_, _>>()?;
    let wanted =
        cases.iter().flat_map(|(operation, sizes)| sizes.iter().map(move |bytes| (*operation, *bytes)));
    ensure!(
        times.iter().map(|found| (found.operation.as_str(), found.bytes)).eq(wanted),
        "not the figures of {cases:?}: {output:?}"
    );
    ensure!(times.iter().all(|found| found.interposed), "the library isn't in the program: {output:?}");
    Ok(times)
}

/// The arguments of the measuring program.
pub(super) fn words(cases: &Cases<'_>, repetitions: u32) -> Vec<String> {
    let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let pairs = cases.iter().flat_map(|(operation, sizes)| [(*operation).to_owned(), list(sizes)]);
    pairs.chain([repetitions.to_string()]).collect()
}

/// A file that `make -C mpi smpi` makes.
fn made(name: &str) -> anyhow::Result<PathBuf> {
    let path = target().join("mpi/smpi").join(name);
    ensure!(path.is_file(), "{} is not there: run `make -C mpi smpi`", path.display());
    Ok(path)
}

/// Simulates the cases once. A repetition would give the same times. Files go to `directory`.
///
/// # Errors
/// The simulation fails or takes too long.
pub(super) fn simulate(
    platform: &Platform,
    selection: Selection,
    cases: &Cases<'_>,
    directory: &Path,
) -> anyhow::Result<Vec<Times>> {
    let program = Program { path: made("colltime")?, words: words(cases, 1), collectives: None };
    read_times(&run(platform, selection, &program, directory)?, cases)
}

/// A program to simulate.
#[derive(Debug)]
pub(crate) struct Program {
    pub path: PathBuf,
    pub words: Vec<String>,
    /// Which collectives the library takes (`ISTHMUS_COLL`); by default those that it chooses.
    pub collectives: Option<&'static str>,
}

/// Simulates a program that was linked with the library, and returns what it printed. Files go to
/// `directory`.
///
/// # Errors
/// The simulation fails or takes too long.
pub(crate) fn run(
    platform: &Platform,
    selection: Selection,
    program: &Program,
    directory: &Path,
) -> anyhow::Result<String> {
    let file = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    let (grid, hosts) = (file("grid", platform.grid())?, file("hosts", platform.hostfile())?);
    let topology = file("topology", platform.topology())?;
    let settings = settings(platform);
    // smpirun leaves what it starts behind if it is ended itself.
    let wrapper = format!("timeout --kill-after=5 {}", DEADLINE.as_secs());
    let processors = platform.processors.map(|count| ("ISTHMUS_SIMULATED_PROCESSORS", count.to_string()));
    let output = Command::new("smpirun")
        .args(["-wrapper", &wrapper, "-np", &platform.ranks().to_string(), "-platform"])
        .arg(made("grid.so")?)
        .arg("-hostfile")
        .arg(hosts)
        .args(settings.iter().map(|setting| format!("--cfg={setting}")))
        .arg("--log=root.thresh:warning")
        .arg(&program.path)
        .args(&program.words)
        .current_dir(directory)
        .env("TMPDIR", directory)
        // Otherwise each of thousands of ranks clears 16 MiB when it reads the topology.
        .env("MALLOC_MMAP_THRESHOLD_", "1048576")
        .env("ISTHMUS_SIMULATED_GRID", grid)
        .env("ISTHMUS_TOPOLOGY", topology)
        .env("ISTHMUS_SIMULATED", selection.family())
        .env_remove("ISTHMUS_SIMULATED_PROCESSORS")
        .envs(processors)
        .env_remove("ISTHMUS_COLL")
        .envs(program.collectives.map(|collectives| ("ISTHMUS_COLL", collectives)))
        .env_remove("ISTHMUS_MPI_REPORT")
        .stdin(Stdio::null())
        .output()
        .context("cannot run smpirun (package libsimgrid-dev)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("smpirun, {}, {}: {}\n{text}\n{errors}", platform.name, selection.title(), output.status);
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_must_be_there_and_the_library_in() {
        let line = |operation: &str, bytes: u64, interposed: bool| {
            format!(
                "{{\"operation\": \"{operation}\", \"bytes\": {bytes}, \"ours_least_us\": 2000.0, \
                 \"native_least_us\": 3000.0, \"interposed\": {interposed}}}\n"
            )
        };
        let whole = format!("noise\n{}{}", line("barrier", 4, true), line("bcast", 8, true));
        let times = read_times(&whole, &[("barrier", &[4]), ("bcast", &[8])]).unwrap();
        assert_eq!(times.len(), 2);
        assert_eq!(times[1].milliseconds(), [2.0, 3.0]);
        for (output, why) in [
            (line("bcast", 4, false), "isn't in the program"),
            (line("bcast", 8, true), "not the figures"),
            (String::new(), "not the figures"),
        ] {
            let error = read_times(&output, &[("bcast", &[4])]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}

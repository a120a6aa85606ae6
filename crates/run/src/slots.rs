//! What a launcher will do with more ranks than slots, said before it does: a pure
//! decision. docs/mpi.md has the table.

use isthmus_front::format::count;

use super::mpi::Launcher;
use super::preflight::{Finding, Weight};
use super::programs;

/// What a launcher does with more ranks than slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excess {
    Refused,
    ShareCores,
}

/// The finding, if there are more ranks than slots. `None` if the user has named the launcher's
/// nodes: the launcher then counts slots that isthmus doesn't know. `variable` looks up an
/// environment variable.
pub(super) fn finding(
    launcher: Launcher,
    arguments: &[String],
    variable: impl Fn(&str) -> Option<String>,
    (ranks, slots): (Option<u64>, u64),
) -> Option<Finding> {
    let ranks = ranks.filter(|ranks| *ranks > slots && !programs::is_placed(arguments))?;
    let (does, remedy) = match excess(launcher, arguments, variable) {
        // The launcher's own settings in files may allow it, so the launcher has the last word.
        Excess::Refused => (
            format!("{launcher} refuses more ranks than slots"),
            "`--oversubscribe` lets some share a core; or start fewer, or give more nodes with --nodes",
        ),
        Excess::ShareCores => {
            ("some will share a core".to_owned(), "start fewer, or give more nodes with --nodes")
        }
    };
    let what = format!("{} on {}: {does}", count(ranks, "rank"), count(slots, "slot"));
    Some(Finding { node: String::new(), what, remedy, weight: Weight::Light })
}

fn excess(launcher: Launcher, arguments: &[String], variable: impl Fn(&str) -> Option<String>) -> Excess {
    // PRRTE no longer has Open MPI 4's parameter.
    let (flag, policy) = match launcher {
        Launcher::Mpich => return Excess::ShareCores,
        Launcher::OpenMpi4 => (Some("rmaps_base_oversubscribe"), "rmaps_base_mapping_policy"),
        Launcher::OpenMpi5 => (None, "rmaps_default_mapping_policy"),
    };
    let prefix = if launcher == Launcher::OpenMpi4 { "OMPI_MCA" } else { "PRTE_MCA" };
    let set = |name: &str| variable(&format!("{prefix}_{name}"));
    let mut allowed = flag.and_then(set).is_some_and(|value| is_true(&value))
        || set(policy).is_some_and(|value| shares(&value));
    for words in arguments.windows(2) {
        let [word, value] = words else { continue };
        allowed |= match word.trim_start_matches('-') {
            "oversubscribe" => word.starts_with('-'),
            "map-by" => shares(value),
            name => (flag == Some(name) && is_true(value)) || (name == policy && shares(value)),
        };
    }
    if allowed { Excess::ShareCores } else { Excess::Refused }
}

/// Whether a mapping lets ranks share slots: by the modifier in `node:OVERSUBSCRIBE`, or a shorter
/// form of it.
fn shares(mapping: &str) -> bool {
    let is_modifier = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.len() >= 4 && "oversubscribe".starts_with(&word)
    };
    mapping.split([':', ',']).skip(1).any(is_modifier)
}

/// Whether Open MPI takes a variable's value for true.
fn is_true(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|number| number != 0)
        || ["true", "t", "enabled", "yes", "y"].contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_launcher_does_with_more_ranks_than_slots() {
        use Launcher::{Mpich, OpenMpi4, OpenMpi5};
        let refused = |launcher| format!("5 ranks on 4 slots: {launcher} refuses more ranks than slots");
        let (four, five) = (&*refused("Open MPI 4"), &*refused("Open MPI 5"));
        let share = "5 ranks on 4 slots: some will share a core";
        for (launcher, line, variable, want) in [
            (OpenMpi4, "-n 4 ./app", "", ""),
            (OpenMpi4, "./app", "", ""),
            (OpenMpi4, "-n 5 ./app", "", four),
            (OpenMpi5, "-n 5 ./app", "", five),
            (Mpich, "-n 5 ./app", "", share),
            (OpenMpi4, "-n 2 ./a : -n 3 ./b", "", four),
            (OpenMpi4, "-n 5 --map-by node ./app", "", four),
            (OpenMpi4, "-n 5 --map-by node:NOOVERSUBSCRIBE ./app", "", four),
            (OpenMpi4, "-n 5 ./app oversubscribe 1", "", four),
            (OpenMpi4, "--oversubscribe -n 5 ./app", "", share),
            (OpenMpi5, "-oversubscribe -n 5 ./app", "", share),
            (OpenMpi4, "-n 5 --map-by node:OVERSUBSCRIBE ./app", "", share),
            (OpenMpi5, "-n 5 --map-by :over ./app", "", share),
            (OpenMpi5, "-n 5 --map-by ppr:2:node:oversubscribe ./app", "", share),
            (OpenMpi4, "-n 5 --mca rmaps_base_oversubscribe 1 ./app", "", share),
            (OpenMpi4, "-n 5 --mca rmaps_base_oversubscribe 0 ./app", "", four),
            (OpenMpi5, "-n 5 --mca rmaps_base_oversubscribe 1 ./app", "", five),
            (OpenMpi5, "-n 5 --prtemca rmaps_default_mapping_policy :oversubscribe ./app", "", share),
            (OpenMpi4, "-n 5 ./app", "OMPI_MCA_rmaps_base_oversubscribe=true", share),
            (OpenMpi4, "-n 5 ./app", "OMPI_MCA_rmaps_base_oversubscribe=0", four),
            (OpenMpi5, "-n 5 ./app", "OMPI_MCA_rmaps_base_oversubscribe=1", five),
            (OpenMpi4, "-n 5 ./app", "OMPI_MCA_rmaps_base_mapping_policy=:oversubscribe", share),
            (OpenMpi5, "-n 5 ./app", "PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe", share),
            // Slots of the user's own.
            (OpenMpi4, "-n 5 -host n1.a:8 ./app", "", ""),
            (OpenMpi4, "-n 2 ./a : -n 3 -host n1.a:8 ./b", "", ""),
            (OpenMpi5, "-n 5 --hostfile mine ./app", "", ""),
            (Mpich, "-n 5 -f mine ./app", "", ""),
        ] {
            let arguments: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            let variable = |name: &str| {
                let (set, value) = variable.split_once('=')?;
                (set == name).then(|| value.to_owned())
            };
            let ranks = super::super::mpi::ranks(&arguments);
            let got = finding(launcher, &arguments, variable, (ranks, 4));
            assert!(got.as_ref().is_none_or(|finding| !finding.is_fatal()), "{line}");
            assert_eq!(got.map(|finding| finding.what).unwrap_or_default(), want, "{launcher}: {line}");
        }
    }
}

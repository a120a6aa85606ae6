//! The `isthmus` command, whose services a lab starts.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Name of the command's file.
const COMMAND: &str = "isthmus";

/// The places of the `isthmus` command that a program of the lab belongs to: beside the program; or,
/// where the program is installed as PREFIX/lib/isthmus/isthmus-lab, in PREFIX/bin.
fn places(program: &Path) -> Vec<PathBuf> {
    let directory = program.parent();
    let beside = directory.map(|directory| directory.join(COMMAND));
    let library = directory.filter(|directory| directory.ends_with("lib/isthmus"));
    let prefix = library.and_then(Path::parent).and_then(Path::parent);
    beside.into_iter().chain(prefix.map(|prefix| prefix.join("bin").join(COMMAND))).collect()
}

/// Path of the `isthmus` command that a program of the lab belongs to.
///
/// # Errors
/// It isn't there. The error names the places.
pub(crate) fn of(program: &Path) -> anyhow::Result<PathBuf> {
    let places = places(program);
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.with_context(|| {
        let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "cannot find {COMMAND}, whose services the lab would start: looked for {}",
            looked.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_beside_the_lab_or_in_the_same_prefix() {
        for (program, want) in [
            ("/home/ada/target/release/isthmus-lab", &["/home/ada/target/release/isthmus"][..]),
            ("/usr/lib/isthmus/isthmus-lab", &["/usr/lib/isthmus/isthmus", "/usr/bin/isthmus"]),
            ("/opt/isthmus/bin/isthmus", &["/opt/isthmus/bin/isthmus"]),
        ] {
            let want: Vec<_> = want.iter().map(PathBuf::from).collect();
            assert_eq!(places(Path::new(program)), want, "{program}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let [bin, lib] = ["bin", "lib/isthmus"].map(|place| directory.path().join(place));
        let program = lib.join("isthmus-lab");
        for place in [&bin, &lib] {
            std::fs::create_dir_all(place).unwrap();
        }
        let error = of(&program).unwrap_err().to_string();
        assert!(error.contains(&format!(
            "{} and {}",
            lib.join("isthmus").display(),
            bin.join("isthmus").display()
        )));
        std::fs::write(bin.join("isthmus"), "").unwrap();
        assert_eq!(of(&program).unwrap(), bin.join("isthmus"));
    }
}

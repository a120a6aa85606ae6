//! Whether programs are there, before anything starts: some launchers wait for
//! ever for a rank that could not be started.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use isthmus_wire::proto::ProgramCheck;

/// The programs that this node doesn't have. `own_path` is the agent's own
/// search path.
pub fn missing(check: &ProgramCheck, own_path: &str) -> Vec<String> {
    let lacking = |program: &&String| locate(program, check, own_path).is_none();
    check.programs.iter().filter(lacking).cloned().collect()
}

/// Where a program of the check is.
pub fn locate(program: &str, check: &ProgramCheck, own_path: &str) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return Some(Path::new(&check.working_directory).join(path)).filter(|found| is_program(found));
    }
    // Launchers differ in whether a bare name is looked for where they start.
    let directories = std::env::split_paths(&check.search_path).chain(std::env::split_paths(own_path));
    let here = std::iter::once(PathBuf::from(&check.working_directory));
    directories.chain(here).map(|directory| directory.join(path)).find(|found| is_program(found))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_looked_for_as_launchers_do() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("app");
        std::fs::write(&program, "").unwrap();
        std::fs::write(directory.path().join("data"), "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let here = directory.path().display().to_string();
        for (name, program, working_directory, search_path, found) in [
            ("absolute", program.to_str().unwrap(), "/", "", true),
            ("relative", "./app", here.as_str(), "", true),
            ("relative, elsewhere", "./app", "/", "", false),
            ("in the search path", "app", "/", here.as_str(), true),
            ("in the agent's own path", "sh", "/", "", true),
            ("nowhere", "app", "/", "", false),
            ("not executable", "./data", here.as_str(), "", false),
            ("a directory", "/tmp", "/", "", false),
        ] {
            let check = ProgramCheck {
                programs: vec![program.to_owned()],
                working_directory: working_directory.to_owned(),
                search_path: search_path.to_owned(),
            };
            assert_eq!(missing(&check, "/usr/bin:/bin").is_empty(), found, "{name}");
        }
    }
}

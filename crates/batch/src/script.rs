//! What a node runs for a pilot.

use crate::pilot::SECRET_VARIABLE;

/// A text as one word of a POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What `sh` runs on a node: the pilot's script, which finds the path of its secret. `secret` is
/// that path, as a shell reads it. The locale and the time zone that the scheduler's commands were
/// run with aren't the script's.
pub(crate) fn of_node(script: &str, secret: Option<&str>) -> String {
    let export = secret.map(|path| format!("export {SECRET_VARIABLE}={path}\n")).unwrap_or_default();
    format!("unset LC_ALL TZ SLURM_TIME_FORMAT\n{export}{script}\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_shell_reads_what_was_quoted(text in "[^\0]*") {
            let output = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(&text))]).output().unwrap();
            prop_assert_eq!(output.stdout, text.as_bytes());
        }
    }
}

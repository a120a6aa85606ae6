//! An error as its reader gets it.

/// The text without the numbers that the standard library puts behind the kernel's errors,
/// such as " (os error 2)".
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.trim_start_matches(|digit: char| digit.is_ascii_digit()).strip_prefix(')') {
            Some(rest) => plain.push_str(rest),
            None => plain = format!("{plain} (os error {part}"),
        }
    }
    plain
}

/// An error and its causes on one line. Some errors name their causes themselves.
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| without_numbers(&cause.to_string())) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// An error that names its cause itself.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot read /nonexistent: {0}")]
    struct Unread(#[source] io::Error);

    #[test]
    fn each_cause_is_named_once() {
        let error = anyhow::Error::new(Unread(io::Error::from_raw_os_error(libc::ENOENT)));
        assert_eq!(
            causes(&error.context("cannot start")),
            "cannot start: cannot read /nonexistent: No such file or directory"
        );
    }

    #[test]
    fn errors_of_the_kernel_have_no_numbers() {
        for (text, want) in [
            ("", ""),
            ("x: Broken pipe (os error 32)", "x: Broken pipe"),
            ("a (os error 1); b (os error 2), c", "a; b, c"),
            ("a (os error is odd)", "a (os error is odd)"),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }
}

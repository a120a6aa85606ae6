//! Programs built with the address sanitizer (`-fsanitize=address`). Its library ends a program at
//! the start if another library is loaded before it. A job preloads such libraries. With an option,
//! the sanitizer puts up with them.

/// How the variable [`VARIABLE`] begins in an environment.
pub const ASSIGNMENT: &[u8] = b"ASAN_OPTIONS=";
/// The environment variable that has the sanitizer's options.
pub const VARIABLE: &str = "ASAN_OPTIONS";
/// The option by which the sanitizer puts up with libraries that are loaded before it.
pub const ORDER: &[u8] = b"verify_asan_link_order=0";

/// Whether a user's options have the option of [`ORDER`], with whatever value.
pub fn has_order(options: &[u8]) -> bool {
    let name = ORDER.split(|byte| *byte == b'=').next().unwrap_or_default();
    options.windows(name.len()).any(|part| part == name)
}

/// A user's options with [`ORDER`] added, unless they have that option already.
pub fn with_order(options: &[u8]) -> Vec<u8> {
    if has_order(options) {
        return options.to_vec();
    }
    let separator: &[u8] = if options.is_empty() { b"" } else { b":" };
    [options, separator, ORDER].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_s_options_stay() {
        for (given, want) in [
            ("", "verify_asan_link_order=0"),
            ("detect_leaks=0:color=never", "detect_leaks=0:color=never:verify_asan_link_order=0"),
            ("verify_asan_link_order=1,color=never", "verify_asan_link_order=1,color=never"),
        ] {
            assert_eq!(with_order(given.as_bytes()), want.as_bytes(), "{given}");
        }
    }
}

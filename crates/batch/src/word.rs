//! A name that goes into a command line as it is.

use std::fmt;
use std::str::FromStr;

/// A name of a job, a queue, an account, a tag and the like: 1 to 128 of the characters `A-Z a-z 0-9
/// . _ + @ : -`, of which `-` and `.` aren't the first. So neither a shell nor a scheduler reads more
/// into it than a name, and it is a file's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(String);

/// Most bytes of a [`Word`].
const LONGEST: usize = 128;

/// A text that is no [`Word`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} can't be a name for a scheduler: it takes 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ + @ : -, \
     of which - and . aren't the first"
)]
pub struct WordError(pub String);

impl Word {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Word {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+@:-".contains(&byte);
        let valid =
            (1..=LONGEST).contains(&text.len()) && !text.starts_with(['-', '.']) && text.bytes().all(plain);
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            // What is shown of it is bounded, too.
            Err(WordError(text.chars().take(LONGEST).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_taken() {
        for text in ["main", "gpu-a100_80GB", "ib:edr", "ada@lab.example", "a.b+c", "7"] {
            assert_eq!(text.parse::<Word>().unwrap().as_str(), text);
        }
        let long = "x".repeat(LONGEST + 1);
        for text in [
            "", "-x", ".", "..", ".x", "a b", "a&b", "a|b", "$(x)", "a'b", "a/b", "a\nb", "é", "[1-2]", &long,
        ] {
            assert!(text.parse::<Word>().is_err(), "{text}");
        }
        assert!(long[1..].parse::<Word>().is_ok());
    }
}

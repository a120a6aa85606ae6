//! A word by which nodes are chosen.

use std::fmt;
use std::str::FromStr;

/// A feature that a batch scheduler knows of its nodes, such as `gpu` or `A100_80GB`: 1 to 128 of the
/// characters `A-Z a-z 0-9 . _ + @ : -`, of which `-` and `.` aren't the first. Upper and lower case
/// differ, as schedulers have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

/// Most bytes of a [`Tag`].
const LONGEST: usize = 128;

/// A text that is no [`Tag`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} can't be a tag: it has 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ + @ : -, of which - and . \
     aren't the first"
)]
pub struct TagError(String);

impl Tag {
    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+@:-".contains(&byte);
        let valid =
            (1..=LONGEST).contains(&text.len()) && !text.starts_with(['-', '.']) && text.bytes().all(plain);
        if valid { Ok(Self(text.to_owned())) } else { Err(TagError(text.chars().take(LONGEST).collect())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_as_schedulers_have_them() {
        for text in ["gpu", "A100_80GB", "ib:edr", "skylake", "c+d", "7"] {
            assert_eq!(text.parse::<Tag>().unwrap().as_str(), text);
        }
        for text in ["", "-x", ".x", "two words", "a&b", "a|b", "[1-2]", "a*2", "é", &"x".repeat(129)] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }
}

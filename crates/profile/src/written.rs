//! The file as written: TOML tables. What the values mean together is checked in [`crate::check`].

use std::fmt;
use std::time::Duration;

use isthmus_common::quantity::{BitRate, ByteSize, Delay};
use isthmus_common::time::whole_seconds;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::{Architecture, Ranks};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileTable {
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupTable>,
    #[serde(default)]
    pub between: Vec<BetweenTable>,
    pub time: Option<Spanned<Time>>,
    pub reorder: Option<bool>,
}

/// A table of `[[group]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupTable {
    pub name: Spanned<String>,
    pub ranks: Spanned<Ranks>,
    pub command: Option<Spanned<Words>>,
    #[serde(default)]
    pub split: bool,
    pub cores: Option<Spanned<u32>>,
    pub memory: Option<Spanned<ByteSize>>,
    pub architecture: Option<Architecture>,
    #[serde(default)]
    pub tags: Vec<Spanned<String>>,
    pub rtt: Option<Spanned<Delay>>,
    pub rate: Option<Spanned<BitRate>>,
}

/// A table of `[[between]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BetweenTable {
    // Of an array of two, serde would read the first two names and leave out the others.
    pub groups: Spanned<Vec<Spanned<String>>>,
    pub rtt: Option<Spanned<Delay>>,
    pub rate: Option<Spanned<BitRate>>,
}

/// A time of whole seconds: `"2h"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        whole_seconds(&text)
            .map(Self)
            .map_err(|what| de::Error::custom(format!("{text:?} is no time: {what}")))
    }
}

/// A program and its arguments.
#[derive(Debug)]
pub(crate) struct Words(pub Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words, such as [\"./worker\", \"--fast\"]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(Words(words))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

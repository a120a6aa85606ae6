//! Files of results: JSON, as a whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Writes a result as a whole. A reader sees the old result or the new one. Values that are deeper
/// than `depth` share a line, such as a row of a table.
///
/// # Errors
/// The file can't be written.
pub(crate) fn write_json(path: &Path, depth: usize, value: &impl Serialize) -> anyhow::Result<()> {
    let unfinished = path.with_extension("json.new");
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(&unfinished, text(depth, value)? + "\n")?;
        Ok(fs::rename(&unfinished, path)?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a result from a file.
///
/// # Errors
/// The file isn't there or has another format.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn text(depth: usize, value: &impl Serialize) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let lines = Lines { depth, at: 0, pretty: PrettyFormatter::new(), compact: CompactFormatter };
    value.serialize(&mut Serializer::with_formatter(&mut text, lines))?;
    Ok(String::from_utf8(text)?)
}

/// Begins a line for each value down to a depth.
struct Lines {
    depth: usize,
    /// How many arrays and objects are open.
    at: usize,
    pretty: PrettyFormatter<'static>,
    compact: CompactFormatter,
}

/// Has the formatter for the present depth write.
macro_rules! write_by {
    ($($name:ident($($argument:ident: $type:ty),*) at $at:ident;)*) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W $(, $argument: $type)*) -> io::Result<()> {
            let is_pretty = self.$at() <= self.depth;
            if is_pretty { self.pretty.$name(writer $(, $argument)*) } else { self.compact.$name(writer $(, $argument)*) }
        })*
    };
}

impl Lines {
    fn inside(&mut self) -> usize {
        self.at
    }

    fn entering(&mut self) -> usize {
        self.at += 1;
        self.at
    }

    fn leaving(&mut self) -> usize {
        self.at -= 1;
        self.at + 1
    }
}

impl Formatter for Lines {
    write_by! {
        begin_array() at entering;
        begin_array_value(first: bool) at inside;
        end_array_value() at inside;
        end_array() at leaving;
        begin_object() at entering;
        begin_object_key(first: bool) at inside;
        begin_object_value() at inside;
        end_object_value() at inside;
        end_object() at leaving;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_a_line() {
        let value = json!({"name": "x", "rows": [{"a": [1, 2]}, {"a": [], "b": {}}]});
        for (depth, want) in [
            (0, r#"{"name":"x","rows":[{"a":[1,2]},{"a":[],"b":{}}]}"#.to_owned()),
            (1, "{\n  \"name\": \"x\",\n  \"rows\": [{\"a\":[1,2]},{\"a\":[],\"b\":{}}]\n}".to_owned()),
            (
                2,
                "{\n  \"name\": \"x\",\n  \"rows\": [\n    {\"a\":[1,2]},\n    {\"a\":[],\"b\":{}}\n  ]\n}"
                    .to_owned(),
            ),
            (9, serde_json::to_string_pretty(&value).unwrap()),
        ] {
            assert_eq!(text(depth, &value).unwrap(), want, "{depth}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            value in prop::collection::btree_map("[a-z]{0,3}", prop::collection::vec(0u32..9, 0..4), 0..4),
            depth in 0usize..5
        ) {
            let read: BTreeMap<String, Vec<u32>> = serde_json::from_str(&text(depth, &value).unwrap()).unwrap();
            prop_assert_eq!(read, value);
        }
    }
}

//! Results that are missing, or older than what they measure.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::{BENCHMARKS, Benchmark, Sources};
use crate::files::read_json;
use crate::report::SCHEMA;

/// Options of `isthmus-bench check`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the results are.
    #[arg(long, default_value = "bench/results")]
    results: std::path::PathBuf,
}

/// The part of a result that all benchmarks have.
#[derive(Debug, Deserialize)]
struct Header {
    #[serde(default)]
    schema: u32,
    #[serde(default)]
    complete: bool,
    sources: Option<Sources>,
}

/// Lists results that are missing or stale. The exit status is 1 if there are any.
///
/// # Errors
/// This is no git repository.
pub(crate) fn check(options: &Options) -> anyhow::Result<ExitCode> {
    let mut stale = false;
    for Benchmark { name, .. } in BENCHMARKS {
        let found = read_json::<Header>(&options.results.join(format!("{name}.json")));
        if let Some(problem) = problem(found.as_ref().ok(), &Sources::here(name)?) {
            stale = true;
            println!("{name}: {problem}; measure again with `make bench-{name}`");
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Why a result doesn't stand for the sources `now`. `None` if it does.
fn problem(result: Option<&Header>, now: &Sources) -> Option<String> {
    let Some(Header { schema, complete, sources }) = result else { return Some("no result".into()) };
    if *schema != SCHEMA {
        return Some(format!("the result has schema {schema}, this program writes {SCHEMA}"));
    }
    let Some(then) = sources else { return Some("the result names no commit".into()) };
    if !complete {
        return Some("not all rows were measured with its sources".into());
    }
    let changed: Vec<&str> = then
        .objects
        .keys()
        .chain(now.objects.keys().filter(|path| !then.objects.contains_key(*path)))
        .filter(|path| then.objects.get(*path) != now.objects.get(*path))
        .map(String::as_str)
        .collect();
    if !changed.is_empty() {
        return Some(format!("changed since {}: {}", then.commit, changed.join(", ")));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::sources;
    use super::*;

    #[test]
    fn staleness() {
        let then = [("crates/agent", "1"), ("crates/plan", "2")];
        let result = |schema, complete| Some(Header { schema, complete, sources: Some(sources(&then)) });
        let same = sources(&then);
        for (name, result, now, want) in [
            ("fresh", result(SCHEMA, true), same.clone(), None),
            ("missing", None, same.clone(), Some("no result")),
            ("old schema", result(1, true), same.clone(), Some("schema 1")),
            ("unfinished", result(SCHEMA, false), same.clone(), Some("not all rows")),
            (
                "changed",
                result(SCHEMA, true),
                sources(&[("crates/agent", "3"), then[1]]),
                Some("changed since c0ffee: crates/agent"),
            ),
            (
                "added",
                result(SCHEMA, true),
                sources(&[then[0], then[1], ("crates/dial", "4")]),
                Some("changed since c0ffee: crates/dial"),
            ),
            ("removed", result(SCHEMA, true), sources(&then[..1]), Some("changed since c0ffee: crates/plan")),
        ] {
            let found = problem(result.as_ref(), &now);
            match want {
                None => assert_eq!(found, None, "{name}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{name}: {found:?}")
                }
            }
        }
        let nameless = Header { schema: SCHEMA, complete: true, sources: None };
        assert_eq!(problem(Some(&nameless), &same).as_deref(), Some("the result names no commit"));
    }
}

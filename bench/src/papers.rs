//! The papers' figures beside ours: tables in docs/papers.md, made of the
//! committed results.

mod counters;
mod curves;
mod maps;
mod ray2mesh;
mod simulated;
mod tables;
mod times;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;

use crate::coll;
use crate::files::read_json;
use crate::grid::root;
use crate::patterns::Traffic;
use crate::report::Report;
use crate::sources::is_same_directory;
use counters::{Count, Counted};

/// Path of the page in the repository.
const PAGE: &str = "docs/papers.md";
/// Path of the committed results in the repository.
const RESULTS: &str = "bench/results";
/// Path of the page's pictures in the repository.
const PICTURES: &str = "bench/results";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print the page instead.
    #[arg(long)]
    print: bool,
}

/// Writes the page anew.
///
/// # Errors
/// A result or the page is missing or can't be read, or the page can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let results = Results::committed()?;
    let new = page(&old, &results)?;
    if options.print {
        print!("{new}");
        return Ok(());
    }
    for (name, svg) in pictures(&results)? {
        let path = root().join(PICTURES).join(name);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the page anew if `results` is the directory of the committed results.
///
/// # Errors
/// [`run`] fails.
pub(crate) fn refresh(results: &Path) -> anyhow::Result<()> {
    if is_same_directory(results, &root().join(RESULTS)) {
        run(&Options { print: false })?;
    }
    Ok(())
}

fn results(name: &str) -> anyhow::Result<Report> {
    read_json(&root().join(RESULTS).join(format!("{name}.json")))
        .with_context(|| format!("run `make bench-{name}`"))
}

/// The results that the page's tables are made of. Those that may be missing are `None` then.
struct Results {
    connect: Report,
    patterns: Report,
    trunk: Report,
    nas: Report,
    coll: Option<Report>,
    programs: Option<Report>,
    simulate: Option<Report>,
    ray2mesh: Option<Report>,
    start: Option<Report>,
    counts: Option<Vec<Counted>>,
}

impl Results {
    fn committed() -> anyhow::Result<Self> {
        Ok(Self {
            connect: results("connect")?,
            patterns: results("patterns")?,
            trunk: results("trunk")?,
            nas: results("nas")?,
            coll: results("coll").ok(),
            programs: results("programs").ok(),
            simulate: results("simulate").ok(),
            ray2mesh: results("ray2mesh").ok(),
            start: results("start").ok(),
            counts: read_json(&root().join(RESULTS).join("trunk-counts.json")).ok(),
        })
    }
}

/// The page `old` with its tables made anew.
fn page(old: &str, results: &Results) -> anyhow::Result<String> {
    let Results { connect, patterns, trunk, nas, coll, programs, simulate, ray2mesh, start, counts } =
        results;
    let counts = counts.as_deref();
    let mut page = old.to_owned();
    for (name, table) in [
        ("latency", tables::latency(connect)?),
        ("bandwidth", tables::bandwidth(connect)?),
        ("set-up", tables::set_up(connect)?),
        ("relays", tables::relays(patterns)?),
        ("streams", tables::rates(patterns, Traffic::Streams)?),
        ("answered", tables::rates(patterns, Traffic::Answered)?),
        ("gathers", maps::gathers(trunk)),
        ("applications", tables::applications(nas)),
        ("by-way", tables::by_way(nas)),
        ("over-gateways", tables::over_gateways(nas)),
        ("programs", tables::programs(programs.as_ref())),
        ("collectives", maps::collectives(coll.as_ref(), coll::OWN)),
        ("bounds", maps::collectives(coll.as_ref(), coll::BOUND)),
        (
            "conditions",
            tables::conditions(
                [connect, patterns, trunk, nas]
                    .into_iter()
                    .chain(coll)
                    .chain(programs)
                    .chain(simulate)
                    .chain(ray2mesh)
                    .chain(start),
            ),
        ),
        ("checked", simulated::checked(simulate.as_ref())),
        ("figures-2", simulated::figures_2(simulate.as_ref())),
        ("map", simulated::map(simulate.as_ref())),
        ("slower", simulated::slower(simulate.as_ref())),
        ("ray2mesh", ray2mesh::lines(ray2mesh.as_ref())),
        ("starts", times::starting(start.as_ref())),
        ("gather-times", times::gathers(trunk)),
        ("fast-retransmits", counters::counts(counts, Count::FastRetransmits)),
        ("timeouts", counters::counts(counts, Count::Timeouts)),
        ("processors", counters::processors(counts)),
        ("nodes", counters::nodes(counts)),
    ] {
        let begin = format!("<!-- {name} -->\n");
        let at = page.find(&begin).with_context(|| format!("{PAGE} has no {begin:?}"))? + begin.len();
        let rest = page.get(at..).unwrap_or_default();
        let length = rest.find("<!-- end -->").with_context(|| format!("{name} has no end in {PAGE}"))?;
        page.replace_range(at..at + length, &table);
    }
    Ok(page)
}

/// The page's pictures: names of files, and what is in them.
fn pictures(results: &Results) -> anyhow::Result<[(&'static str, String); 4]> {
    let Results { trunk, simulate, ray2mesh, start, .. } = results;
    Ok([
        ("papers-2.svg", curves::draw(&simulated::charts(simulate.as_ref()))?),
        ("papers-ray2mesh.svg", curves::draw(&[ray2mesh::chart(ray2mesh.as_ref())])?),
        ("papers-3.svg", curves::draw(&[times::starting_chart(start.as_ref())])?),
        ("papers-9-10.svg", curves::draw(&[times::gathers_chart(trunk)])?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever commits results commits the page that is made of them.
    #[test]
    fn the_page_has_the_committed_results() {
        let committed = fs::read_to_string(root().join(PAGE)).unwrap();
        let made = page(&committed, &Results::committed().unwrap()).unwrap();
        assert!(made == committed, "{PAGE} is not what `isthmus-bench papers` makes of {RESULTS}");
    }

    #[test]
    fn a_result_that_is_missing_is_named() {
        let whole = Results::committed().unwrap();
        let error = page("nothing", &whole).unwrap_err().to_string();
        assert!(error.contains("docs/papers.md has no \"<!-- latency"), "{error}");
        let mut lacks = whole;
        lacks.patterns.rows.retain(|row| !row.comparison.what.starts_with("half round trip, one-gateway"));
        let committed = fs::read_to_string(root().join(PAGE)).unwrap();
        let error = page(&committed, &lacks).unwrap_err().to_string();
        assert!(error.contains("patterns.json has no `half round trip, one-gateway, 128 B`"), "{error}");
    }
}

//! Ray2mesh by the number of ranks, which are the lines of the paper's figure 3(a).

use super::curves::{Chart, Curve};
use super::tables::{NOTHING, heading, line};
use crate::ray2mesh::{AGAINST, Line, platforms, what};
use crate::report::{Report, figures};

const NONE: &str = "not measured";

/// Seconds of a line and of vanilla.
fn times(report: &Report, platform: &str, of: Line) -> Option<[f64; 2]> {
    let what = what(platform, of);
    let row =
        report.rows.iter().find(|row| row.comparison.what == what && row.comparison.against == AGAINST)?;
    let found = row.figures.as_ref()?;
    Some([found.ours, found.reference])
}

/// A table: a line for each platform, a column for each line of the figure, with how much faster than
/// vanilla it is.
pub(super) fn lines(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let names = Line::OTHERS.map(|line| line.to_string());
    let columns: Vec<&str> = ["", AGAINST].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = heading(&columns);
    for (platform, _) in platforms() {
        let vanilla = times(report, &platform, Line::OTHERS[0]);
        let vanilla =
            vanilla.map_or_else(|| NONE.to_owned(), |[_, vanilla]| format!("{} s", figures(vanilla)));
        let cells = Line::OTHERS.map(|of| match times(report, &platform, of) {
            None => NONE.to_owned(),
            Some([ours, vanilla]) => {
                format!("{} s ({:+.1} %)", figures(ours), 100.0 * (vanilla / ours - 1.0))
            }
        });
        line(&mut table, &[&[platform, vanilla][..], &cells].concat());
    }
    table
}

/// The same as a chart.
pub(super) fn chart(report: Option<&Report>) -> Chart {
    let curve = |name: String, of: Line, side: usize| {
        let point =
            |(platform, ranks): (String, usize)| Some((ranks as f64, times(report?, &platform, of)?[side]));
        Curve { name, points: platforms().into_iter().filter_map(point).collect() }
    };
    let others = Line::OTHERS.map(|of| curve(of.to_string(), of, 0));
    let vanilla = curve(AGAINST.to_owned(), Line::OTHERS[0], 1);
    let curves = std::iter::once(vanilla).chain(others).collect();
    Chart { title: "3(a): Ray2mesh, simulated".into(), axes: ["ranks", "s"], curves }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Comparison, Row};

    #[test]
    fn how_much_faster_each_line_is() {
        let mut report = super::super::results("connect").unwrap();
        let platform = platforms().remove(4).0;
        let row = |line, ours| Row::new(Comparison::new(what(&platform, line), "s", AGAINST), &[[ours, 3.0]]);
        report.rows = vec![row(Line::Collectives, 2.5), row(Line::Bosses, 4.0)];
        let table = lines(Some(&report));
        let want = format!("| {platform} | 3.00 s | 2.50 s (+20.0 %) | 4.00 s (-25.0 %) | {NONE} |");
        assert!(table.contains(&want), "{table}");
        let chart = chart(Some(&report));
        assert_eq!(chart.curves[0].points, [(180.0, 3.0)]);
        assert_eq!(chart.curves[1].points, [(180.0, 2.5)]);
        assert_eq!(lines(None), NOTHING);
    }
}

//! A picture of sites and what joins them (SVG): of a grid, or of a job.

use std::f64::consts::TAU;

use svg::Document;
use svg::node::element::{Line, Rectangle, Style, Text, Title};

/// A site, with some lines about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The site's name, above the lines.
    pub name: String,
    /// The lines about it.
    pub lines: Vec<String>,
    /// Whether any of its nodes is up.
    pub is_up: bool,
}

/// What joins two sites, by their places in the list of sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The places of the two sites in the list.
    pub ends: [usize; 2],
    /// The lines beside it.
    pub lines: Vec<String>,
    /// The bytes that were carried between the sites, if known: the more, the wider the line.
    pub bytes: Option<u64>,
}

/// The style sheet of a picture's text, for a `style` element of an SVG document.
pub const STYLE: &str = "text{font-family:system-ui,'DejaVu Sans',sans-serif}";
const INK: &str = "#1a1a1a";
const FAINT: &str = "#555555";
/// Line and filling of a site that is up. People with any colour vision distinguish these colours
/// (Okabe and Ito, 2008).
const UP: [&str; 2] = ["#0072b2", "#e6f1f8"];
const DOWN: [&str; 2] = ["#c04a00", "#fbeee6"];
const BOX_HEIGHT: f64 = 84.0;
const LINE_HEIGHT: f64 = 16.0;
const SIZE: f64 = 13.0;
const PADDING: f64 = 12.0;
const MARGIN: f64 = 24.0;
const TITLE_HEIGHT: f64 = 36.0;
/// The width of a letter, as a share of its height. Browsers differ, so this errs to the wide side.
const LETTER: f64 = 0.58;

fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * SIZE * LETTER
}

/// Draws the sites on a circle, or two sites beside each other, with straight lines between them.
pub fn draw(title: &str, sites: &[Site], edges: &[Edge]) -> String {
    let longest =
        |lines: &mut dyn Iterator<Item = &String>| lines.map(|line| width_of(line)).fold(0.0, f64::max);
    let box_width = longest(&mut sites.iter().flat_map(|site| site.lines.iter().chain([&site.name])))
        .max(120.0)
        + 2.0 * PADDING;
    let label_width = longest(&mut edges.iter().flat_map(|edge| &edge.lines));
    let places = places(sites.len(), box_width, label_width);
    let most = |axis: fn(&(f64, f64)) -> f64| places.iter().map(axis).fold(0.0, f64::max);
    let width = (most(|place| place.0) + box_width / 2.0 + MARGIN).max(width_of(title) * 1.3 + 2.0 * MARGIN);
    let height = most(|place| place.1) + BOX_HEIGHT / 2.0 + MARGIN;
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, width.ceil(), height.ceil()))
        .set("width", width.ceil())
        .set("height", height.ceil())
        .set("role", "img")
        .add(Title::new(title))
        .add(Style::new(STYLE))
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"))
        .add(text(MARGIN, TITLE_HEIGHT, SIZE + 3.0, INK, title, "start").set("font-weight", "bold"));
    let between = |edge: &Edge| Some([*places.get(edge.ends[0])?, *places.get(edge.ends[1])?]);
    for edge in edges {
        let Some([from, to]) = between(edge) else { continue };
        document = document.add(
            Line::new()
                .set("x1", from.0)
                .set("y1", from.1)
                .set("x2", to.0)
                .set("y2", to.1)
                .set("stroke", "#8c8c8c")
                .set("stroke-width", stroke(edge.bytes)),
        );
    }
    for edge in edges {
        let Some([from, to]) = between(edge) else { continue };
        // Not in the middle, where lines cross.
        let far = edge.ends[0].abs_diff(edge.ends[1]);
        let share = if far == 1 || far == sites.len() - 1 { 0.5 } else { 0.28 };
        let (x, y) = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
        let (w, h) = (label_width + PADDING, edge.lines.len() as f64 * LINE_HEIGHT + 6.0);
        document = document.add(
            Rectangle::new()
                .set("x", x - w / 2.0)
                .set("y", y - h / 2.0)
                .set("width", w)
                .set("height", h)
                .set("rx", 4)
                .set("fill", "#ffffff")
                .set("fill-opacity", 0.9),
        );
        for (line, row) in edge.lines.iter().zip(0..) {
            let down = y - h / 2.0 + LINE_HEIGHT * (f64::from(row) + 0.85);
            document = document.add(text(x, down, SIZE - 1.0, INK, line, "middle"));
        }
    }
    for (site, (x, y)) in sites.iter().zip(&places) {
        let [strong, light] = if site.is_up { UP } else { DOWN };
        let (left, top) = (x - box_width / 2.0, y - BOX_HEIGHT / 2.0);
        document = document
            .add(
                Rectangle::new()
                    .set("x", left)
                    .set("y", top)
                    .set("width", box_width)
                    .set("height", BOX_HEIGHT)
                    .set("rx", 6)
                    .set("fill", light)
                    .set("stroke", strong)
                    .set("stroke-width", 1.5),
            )
            .add(
                text(left + PADDING, top + 22.0, SIZE + 2.0, strong, &site.name, "start")
                    .set("font-weight", "bold"),
            );
        for (line, row) in site.lines.iter().zip(0..) {
            let down = top + 42.0 + LINE_HEIGHT * f64::from(row);
            document = document.add(text(left + PADDING, down, SIZE, FAINT, line, "start"));
        }
    }
    document.to_string() + "\n"
}

/// The middle of each site's box.
fn places(count: usize, box_width: f64, label_width: f64) -> Vec<(f64, f64)> {
    let (x, y) = (MARGIN + box_width / 2.0, TITLE_HEIGHT + MARGIN + BOX_HEIGHT / 2.0);
    match count {
        0 => Vec::new(),
        1 => vec![(x, y)],
        2 => vec![(x, y), (x + box_width + label_width + 3.0 * PADDING, y)],
        _ => {
            let share = TAU / count as f64;
            // Neighbours don't touch, and labels of lines that meet have room beside each other.
            let apart = (box_width + label_width) / (share / 2.0).sin() / 2.0;
            let radius = apart.max(2.0 * label_width + 2.0 * PADDING).max(170.0);
            let flat = 0.75;
            (0..count)
                .map(|at| {
                    let angle = share * at as f64 - TAU / 4.0;
                    (x + radius * (1.0 + angle.cos()), y + radius * flat * (1.0 + angle.sin()))
                })
                .collect()
        }
    }
}

/// The width of an edge's line: from 1.5 for nothing or an unknown number of bytes to 9 for a
/// terabyte.
fn stroke(bytes: Option<u64>) -> f64 {
    let digits = bytes.filter(|bytes| *bytes > 0).map_or(0.0, |bytes| (bytes as f64).log10());
    1.5 + digits.clamp(0.0, 12.0) * 0.625
}

fn text(x: f64, y: f64, size: f64, colour: &str, content: &str, anchor: &str) -> Text {
    Text::new(content)
        .set("x", x)
        .set("y", y)
        .set("font-size", size)
        .set("fill", colour)
        .set("text-anchor", anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(count: usize) -> Vec<Site> {
        let site = |at| Site { name: format!("site{at}"), lines: vec!["2 nodes".to_owned()], is_up: at != 1 };
        (0..count).map(site).collect()
    }

    #[test]
    fn every_site_and_edge_is_drawn() {
        for count in 0..12 {
            let edges: Vec<_> = (1..count)
                .map(|at| Edge { ends: [0, at], lines: vec![format!("way {at} <&>")], bytes: Some(1 << at) })
                .collect();
            let drawn = draw("job <1>", &sites(count), &edges);
            let events = svg::read(&drawn).unwrap();
            let lines = events.filter(|event| matches!(event, svg::parser::Event::Tag("line", ..))).count();
            assert_eq!(lines, count.saturating_sub(1));
            for at in 0..count {
                assert!(drawn.contains(&format!("site{at}")), "{count}");
            }
            assert!(!drawn.contains("<&>") && !drawn.contains("job <1>"), "texts are escaped");
        }
    }

    #[test]
    fn boxes_are_apart_and_edges_lead_to_sites() {
        for count in 2..40 {
            let all = places(count, 150.0, 200.0);
            for (at, one) in all.iter().enumerate() {
                for other in &all[at + 1..] {
                    let apart = (one.0 - other.0).abs() >= 150.0 || (one.1 - other.1).abs() >= BOX_HEIGHT;
                    assert!(apart, "{count}: {one:?} {other:?}");
                }
            }
        }
        let stray = Edge { ends: [0, 9], lines: Vec::new(), bytes: None };
        assert!(!draw("", &sites(2), &[stray]).contains("<line"));
        assert!(stroke(None) < stroke(Some(1_000_000)) && stroke(Some(u64::MAX)) <= 9.0);
    }
}

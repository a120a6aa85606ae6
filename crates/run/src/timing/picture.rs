//! The picture of a start: a line for each phase and each node, with time from
//! left to right.

use isthmus_front::picture::STYLE;
use svg::Document;
use svg::node::element::{Line, Rectangle, Style, Text, Title};

use super::Timing;

const WIDTH: f64 = 960.0;
/// Width of the names at the left.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 64.0;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const SIZE: f64 = 12.0;
const INK: &str = "#1a1a1a";
const FAINT: &str = "#d0d0d0";
// Colours that people with colour blindness can distinguish (Okabe and Ito,
// "Color universal design", 2008).
const PHASE: &str = "#595959";
const REACHED: &str = "#56b4e9";
const READY: &str = "#0072b2";
const COMMAND: &str = "#d55e00";

/// One line of the picture.
struct Row {
    name: String,
    /// Each bar's colour, its beginning and end in seconds, and its tooltip.
    bars: Vec<(&'static str, [f64; 2], String)>,
}

pub(crate) fn draw(timing: &Timing, title: &str) -> String {
    let rows = rows(timing);
    let end = timing.start_seconds().max(f64::EPSILON);
    let height = TOP + ROW * (rows.len() as f64 + 1.0);
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - RIGHT) * (seconds / end).clamp(0.0, 1.0);
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, WIDTH, height))
        .set("width", WIDTH)
        .set("height", height)
        .set("role", "img")
        .add(Title::new(title))
        .add(Style::new(STYLE))
        .add(Rectangle::new().set("width", WIDTH).set("height", height).set("fill", "#ffffff"))
        .add(text(12.0, 22.0, title).set("font-weight", "bold"));
    let mut place = 12.0;
    for (colour, what) in [
        (PHASE, "phase"),
        (REACHED, "agent reached"),
        (READY, "node made ready"),
        (COMMAND, "command started"),
    ] {
        let sample = Rectangle::new().set("x", place).set("y", 32.0).set("width", BAR).set("height", BAR);
        document = document.add(sample.set("fill", colour)).add(text(place + BAR + 4.0, 42.0, what));
        place += 130.0;
    }
    for tick in ticks(end) {
        let line = Line::new().set("x1", x(tick)).set("x2", x(tick)).set("y1", TOP).set("y2", height);
        let label = format!("{} s", (tick * 1e6).round() / 1e6);
        document = document
            .add(line.set("stroke", FAINT))
            .add(text(x(tick), TOP - 5.0, &label).set("text-anchor", "middle"));
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        document = document.add(text(LEFT - 8.0, y + SIZE * 0.36, &row.name).set("text-anchor", "end"));
        for (colour, [from, to], tooltip) in &row.bars {
            let bar = Rectangle::new()
                .set("x", x(*from))
                .set("y", y - BAR / 2.0)
                // A bar of no time is visible, too.
                .set("width", (x(*to) - x(*from)).max(1.0))
                .set("height", BAR)
                .set("fill", *colour)
                .add(Title::new(tooltip));
            document = document.add(bar);
        }
    }
    document.to_string() + "\n"
}

fn rows(timing: &Timing) -> Vec<Row> {
    let tooltip = |what: &str, [from, to]: [f64; 2]| format!("{what}: {from:.3} s, took {:.3} s", to - from);
    let bar = |colour, what: &str, times: [f64; 2]| (colour, times, tooltip(what, times));
    let phases = timing.phases.iter().filter(|phase| !matches!(phase.name, "program" | "end")).map(|phase| {
        let times = [phase.from_seconds, phase.to_seconds];
        Row { name: phase.what.clone(), bars: vec![bar(PHASE, &phase.what, times)] }
    });
    let nodes = timing.nodes.iter().map(|node| {
        let mut bars = Vec::new();
        if node.ready_seconds[1] > 0.0 {
            bars.push(bar(REACHED, "reached", node.reached_seconds));
            bars.push(bar(READY, "ready", node.ready_seconds));
        }
        bars.extend(
            node.commands.iter().map(|command| bar(COMMAND, &command.command, command.started_seconds)),
        );
        Row { name: node.node.clone(), bars }
    });
    phases.chain(nodes).collect()
}

fn text(x: f64, y: f64, content: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", SIZE).set("fill", INK)
}

/// Round numbers of seconds up to `end`, about eight of them.
fn ticks(end: f64) -> Vec<f64> {
    let rough = end / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(end);
    (0..=(end / step) as usize).map(|number| number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_drawn() {
        let picture = draw(&super::super::tests::example(), "mpirun on 3 nodes");
        let document = svg::read(&picture).unwrap();
        let titles = document.filter(|event| matches!(event, svg::parser::Event::Tag("title", ..))).count();
        // Each title has two tags: the picture's own, five of phases, and three steps of each of
        // two nodes.
        assert_eq!(titles, 2 * (1 + 5 + 6));
        for name in ["n1.beta", "n2.beta", "connections made", "0.05 s", "0.4 s"] {
            assert!(picture.contains(name), "{name} in {picture}");
        }
    }

    #[test]
    fn ticks_are_round() {
        for (end, want) in [(0.4, 8), (1.0, 5), (7.9, 7), (33.0, 6)] {
            let ticks = ticks(end);
            assert_eq!(ticks.len() - 1, want, "{end}: {ticks:?}");
        }
    }
}

//! The elements of the picture.

use svg::Document;
use svg::node::element::{Group, Line as SvgLine, Rectangle, Style, Text, Title};

use super::layout::{
    Area, CardLink, HEAD, LABEL_LINE, LABEL_OFFSET, LINE, Layout, Line, MARGIN, PADDING, Placed, SMALL, TEXT,
    TITLE,
};
use super::{Labels, Tint};

/// The colours of a card's border and background. People with any colour vision can distinguish
/// them (Okabe and Ito, "Color universal design", 2008). Text beside each colour gives its meaning,
/// too.
fn colours(tint: Tint) -> (&'static str, &'static str) {
    match tint {
        Tint::Host => ("#595959", "#f2f2f2"),
        Tint::Nat => ("#0072b2", "#e6f1f8"),
        Tint::Firewall => ("#a8620a", "#fbf1e0"),
        Tint::Open => ("#00795a", "#e4f4ee"),
    }
}

const INK: &str = "#1a1a1a";
const FAINT: &str = "#555555";
const ALARM: &str = "#c04a00";

pub(super) fn draw(name: &str, internet: &str, layout: &Layout) -> String {
    let (width, height) = (layout.width.ceil(), layout.height.ceil());
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .add(Title::new(name))
        .add(Style::new(super::FONT_STYLE))
        .add(Rectangle::new().set("width", width).set("height", height).set("fill", "#ffffff"))
        .add(text(MARGIN, MARGIN + TITLE, TITLE + 2.0, INK, name).set("font-weight", "bold"));
    for placed in &layout.cards {
        for (line, link) in placed.links.iter().zip(&placed.card.links) {
            document = document.add(draw_link(line, link, placed.above));
        }
    }
    document = document.add(band(&layout.band, internet));
    for placed in &layout.cards {
        document = document.add(card(placed));
    }
    document.to_string() + "\n"
}

fn text(x: f64, y: f64, size: f64, colour: &str, content: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", size).set("fill", colour)
}

fn band(area: &Area, internet: &str) -> Group {
    let shape = rectangle(area).set("rx", area.height / 2.0).set("fill", "#eeeeee").set("stroke", "#8c8c8c");
    let (x, y) = (area.x + area.width / 2.0, area.y + area.height / 2.0 + TEXT * 0.36);
    Group::new().add(shape).add(text(x, y, TEXT + 1.0, INK, internet).set("text-anchor", "middle"))
}

fn rectangle(area: &Area) -> Rectangle {
    Rectangle::new().set("x", area.x).set("y", area.y).set("width", area.width).set("height", area.height)
}

fn card(placed: &Placed) -> Group {
    let Placed { card, area, columns, .. } = placed;
    let (strong, light) = colours(card.tint);
    let title_y = area.y + HEAD * 0.5 + TITLE * 0.36;
    let rule = SvgLine::new()
        .set("x1", area.x)
        .set("x2", area.x + area.width)
        .set("y1", area.y + HEAD)
        .set("y2", area.y + HEAD)
        .set("stroke", strong);
    let mut group = Group::new()
        .add(rectangle(area).set("rx", 6).set("fill", light).set("stroke", strong).set("stroke-width", 1.5))
        .add(rule.clone())
        .add(text(area.x + PADDING, title_y, TITLE, INK, &card.title).set("font-weight", "bold"))
        .add(
            text(area.x + area.width - PADDING, title_y, TEXT, strong, &card.kind)
                .set("text-anchor", "end")
                .set("font-weight", "bold"),
        );
    let mut y = area.y + HEAD + PADDING / 2.0;
    for (name, value) in &card.lines {
        y += LINE;
        group = group.add(text(columns[0], y - 4.0, TEXT, FAINT, name)).add(text(
            columns[1],
            y - 4.0,
            TEXT,
            INK,
            value,
        ));
    }
    if !card.lines.is_empty() && !card.rows.is_empty() {
        y += PADDING / 2.0;
        let thin = rule.set("y1", y).set("y2", y).set("stroke-width", 0.5);
        group = group.add(thin);
        y += PADDING / 2.0;
    }
    for row in &card.rows {
        y += LINE;
        let colour = if row.mark.is_some() { ALARM } else { FAINT };
        group = group
            .add(text(columns[0], y - 4.0, TEXT, INK, &row.name))
            .add(text(columns[1], y - 4.0, TEXT, INK, &row.address))
            .add(text(columns[2], y - 4.0, SMALL, colour, &row.remarks()));
    }
    group
}

fn draw_link(line: &Line, link: &CardLink, above: bool) -> Group {
    let Line { x, card_y, band_y } = *line;
    let middle = (card_y + band_y) / 2.0;
    let mut stroke = SvgLine::new().set("x1", x).set("x2", x).set("y1", card_y).set("y2", band_y);
    stroke = stroke.set("stroke", if link.cut { ALARM } else { "#404040" }).set("stroke-width", 2);
    if link.cut {
        stroke = stroke.set("stroke-dasharray", "5 4");
    }
    let mut group = Group::new().add(stroke);
    group = match &link.labels {
        Labels::Both(lines) => beside(group, lines, x + LABEL_OFFSET, middle, "start", None),
        Labels::Each { up, down } => {
            // Up is towards the internet, wherever on the page that is.
            let (up_arrow, down_arrow) = if above { ("↓", "↑") } else { ("↑", "↓") };
            let group = beside(group, up, x - LABEL_OFFSET, middle, "end", Some(up_arrow));
            beside(group, down, x + LABEL_OFFSET, middle, "start", Some(down_arrow))
        }
    };
    if link.cut { group.add(cross(x, middle)) } else { group }
}

/// Adds lines of text beside a link, around its middle.
fn beside(group: Group, lines: &[String], x: f64, middle: f64, anchor: &str, arrow: Option<&str>) -> Group {
    let top = middle - lines.len() as f64 * LABEL_LINE / 2.0;
    lines.iter().enumerate().fold(group, |group, (number, line)| {
        let y = top + (number as f64 + 0.8) * LABEL_LINE;
        let line = match arrow {
            Some(arrow) if number == 0 => format!("{arrow} {line}"),
            _ => line.clone(),
        };
        group.add(text(x, y, SMALL, INK, &line).set("text-anchor", anchor))
    })
}

/// The cross on a link that is cut.
fn cross(x: f64, y: f64) -> Group {
    const REACH: f64 = 7.0;
    let stroke = |sign: f64| {
        SvgLine::new()
            .set("x1", x - REACH)
            .set("x2", x + REACH)
            .set("y1", y - sign * REACH)
            .set("y2", y + sign * REACH)
            .set("stroke", ALARM)
            .set("stroke-width", 3)
    };
    Group::new()
        .add(stroke(1.0))
        .add(stroke(-1.0))
        .add(text(x - REACH - 4.0, y - REACH - 2.0, SMALL, ALARM, "cut").set("text-anchor", "end"))
}

//! Where everything goes: cards above and below the internet, which is a band
//! as wide as they are.

use super::text::width;
use super::{Labels, Tint};

/// Font size of a card's title in pixels.
pub(crate) const TITLE: f64 = 15.0;
pub(crate) const TEXT: f64 = 12.0;
pub(crate) const SMALL: f64 = 11.0;

/// Height of a line of text in a card.
pub(super) const LINE: f64 = 17.0;
/// Height of a card's head.
pub(crate) const HEAD: f64 = 28.0;
/// Room around a card's text.
pub(crate) const PADDING: f64 = 10.0;
/// Room between two columns of a card.
const GUTTER: f64 = 14.0;
/// Room between two cards.
const GAP: f64 = 26.0;
/// Room around the whole picture.
pub(crate) const MARGIN: f64 = 24.0;
/// Height of the picture's title.
const CAPTION: f64 = 34.0;
/// Height of the band that is the internet.
const BAND: f64 = 44.0;
const SHORTEST_LINK: f64 = 48.0;
/// Height of a line of text beside a link.
pub(crate) const LABEL_LINE: f64 = 14.0;
/// Distance from a link to its labels.
pub(crate) const LABEL_OFFSET: f64 = 9.0;
/// Most cards side by side.
const MOST_IN_A_ROW: usize = 5;

/// A host or site as the picture shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Card {
    pub title: String,
    pub kind: String,
    pub tint: Tint,
    /// The router's properties, each with its name and value.
    pub lines: Vec<(String, String)>,
    pub rows: Vec<Row>,
    /// Links of the host or site to the internet, the main link first.
    pub links: Vec<CardLink>,
}

/// A link of a host or site as the picture shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardLink {
    pub labels: Labels,
    pub cut: bool,
}

/// A line of a card: a node, or several nodes that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub name: String,
    pub address: String,
    pub roles: String,
    pub mark: Option<&'static str>,
}

impl Row {
    pub(super) fn new(name: &str, address: String, roles: String) -> Self {
        Self { name: name.to_owned(), address, roles, mark: None }
    }

    /// Text of the row's last column: the faults and the services.
    pub(crate) fn remarks(&self) -> String {
        let mark = self.mark.map(|mark| format!("✕ {mark}"));
        let roles = Some(self.roles.clone()).filter(|roles| !roles.is_empty());
        [mark, roles].into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A card, and where it is in the picture.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub card: Card,
    pub area: Area,
    /// Left edges of the columns of names, addresses and remarks.
    pub columns: [f64; 3],
    /// Where the card's links begin at the card and end at the internet.
    pub links: Vec<Line>,
    pub above: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub x: f64,
    pub card_y: f64,
    pub band_y: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layout {
    pub width: f64,
    pub height: f64,
    pub band: Area,
    pub cards: Vec<Placed>,
}

/// Arranges all cards around the internet.
pub(super) fn arrange(hosts: Vec<Card>, sites: Vec<Card>) -> Layout {
    let (above, below) = split(hosts, sites);
    let row_width = |cards: &[Card]| {
        cards.iter().map(outer_width).sum::<f64>() + GAP * cards.len().saturating_sub(1) as f64
    };
    let inner = row_width(&above).max(row_width(&below)).max(420.0);
    let tallest = |cards: &[Card]| cards.iter().map(height).fold(0.0, f64::max);
    let link = |cards: &[Card]| match cards.iter().map(label_lines).max() {
        Some(lines) => (lines as f64 * LABEL_LINE + 24.0).max(SHORTEST_LINK),
        None => 0.0,
    };

    let top = MARGIN + CAPTION;
    let band = Area { x: MARGIN, y: top + tallest(&above) + link(&above), width: inner, height: BAND };
    // The cards above the band stand on one line. The cards below the band hang from one line.
    let (base, bottom) = (top + tallest(&above), band.y + band.height + link(&below));
    let mut cards = Vec::new();
    for (row, is_above) in [(above, true), (below, false)] {
        let mut x = MARGIN + (inner - row_width(&row)) / 2.0;
        for card in row {
            let (outer, width, height) = (outer_width(&card), card_width(&card), height(&card));
            let left = x + (outer - width) / 2.0;
            let y = if is_above { base - height } else { bottom };
            let area = Area { x: left, y, width, height };
            cards.push(place(card, area, &band, is_above));
            x += outer + GAP;
        }
    }
    let lowest = cards.iter().map(|placed| placed.area.y + placed.area.height).fold(band.y + BAND, f64::max);
    Layout { width: inner + 2.0 * MARGIN, height: lowest + MARGIN, band, cards }
}

/// Divides the cards into those above and those below the internet. If the sites are few, all are
/// below, and the hosts above. Many are on both sides.
fn split(hosts: Vec<Card>, sites: Vec<Card>) -> (Vec<Card>, Vec<Card>) {
    if !hosts.is_empty() && sites.len() < MOST_IN_A_ROW {
        return (hosts, sites);
    }
    let half = (hosts.len() + sites.len()) / 2;
    let mut above: Vec<Card> = hosts.into_iter().chain(sites).collect();
    let below = above.split_off(half);
    (above, below)
}

fn place(card: Card, area: Area, band: &Area, above: bool) -> Placed {
    let [names, addresses, _] = column_widths(&card);
    let first = area.x + PADDING;
    let second = first + names + GUTTER;
    let columns = [first, second, second + addresses + GUTTER];
    let (card_y, band_y) =
        if above { (area.y + area.height, band.y) } else { (area.y, band.y + band.height) };
    let slots: Vec<f64> = card.links.iter().map(slot_width).collect();
    let mut left = area.x + (area.width - slots.iter().sum::<f64>()) / 2.0;
    let line = |width: &f64| {
        let x = left + width / 2.0;
        left += width;
        Line { x, card_y, band_y }
    };
    let links = slots.iter().map(line).collect();
    Placed { card, area, columns, links, above }
}

fn height(card: &Card) -> f64 {
    let blocks = [card.lines.len(), card.rows.len()].into_iter().filter(|lines| *lines > 0);
    HEAD + blocks.map(|lines| lines as f64 * LINE + PADDING).sum::<f64>() + PADDING / 2.0
}

/// Widths of the columns of names, addresses and remarks.
fn column_widths(card: &Card) -> [f64; 3] {
    let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
    [
        widest(
            &mut card
                .rows
                .iter()
                .map(|row| width(&row.name, TEXT))
                .chain(card.lines.iter().map(|(name, _)| width(name, TEXT))),
        ),
        widest(
            &mut card
                .rows
                .iter()
                .map(|row| width(&row.address, TEXT))
                .chain(card.lines.iter().map(|(_, value)| width(value, TEXT))),
        ),
        widest(&mut card.rows.iter().map(|row| width(&row.remarks(), SMALL))),
    ]
}

fn card_width(card: &Card) -> f64 {
    let columns = column_widths(card);
    let used = columns.iter().filter(|width| **width > 0.0).count().saturating_sub(1);
    let rows = columns.iter().sum::<f64>() + GUTTER * used as f64;
    // Bold letters are wider.
    let head = width(&card.title, TITLE) * 1.12 + GUTTER + width(&card.kind, TEXT);
    let links = if card.links.len() > 1 { card.links.iter().map(slot_width).sum() } else { 0.0 };
    (rows.max(head) + 2.0 * PADDING).max(120.0).max(links)
}

/// Width of a card, or of what stands beside its links if that is wider.
fn outer_width(card: &Card) -> f64 {
    card_width(card).max(card.links.iter().map(slot_width).sum())
}

/// Width of a link with the text beside it.
fn slot_width(link: &CardLink) -> f64 {
    let widest = |lines: &[String]| lines.iter().map(|line| width(line, SMALL)).fold(0.0, f64::max);
    let labels = match &link.labels {
        Labels::Both(lines) => widest(lines),
        // Each line has an arrow before it.
        Labels::Each { up, down } => widest(up).max(widest(down)) + width("→ ", SMALL),
    };
    2.0 * (labels + LABEL_OFFSET)
}

fn label_lines(card: &Card) -> usize {
    let lines = card.links.iter().map(|link| match &link.labels {
        Labels::Both(lines) => lines.len(),
        Labels::Each { up, down } => up.len().max(down.len()),
    });
    lines.max().unwrap_or(0)
}

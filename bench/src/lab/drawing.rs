//! The results as a picture: how far each figure is from what was asked, in
//! per cent, over the range that is allowed.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::Figure;
use crate::verdict::Verdict;

const WIDTH: u32 = 900;
/// Height in pixels of a line. `MARGINS` is the height above and below all lines.
const LINE: u32 = 22;
const MARGINS: u32 = 90;
/// Width in pixels of the lines' names.
const NAMES: u32 = 430;
/// How many per cent to both sides the picture shows.
const REACH: f64 = 15.0;

/// Draws an SVG picture of all figures that have an asked-for value and a range.
pub(super) fn draw(figures: &[Figure]) -> anyhow::Result<String> {
    let lines: Vec<(&Figure, f64, (f64, f64))> = figures
        .iter()
        .filter_map(|figure| Some((figure, figure.asked.filter(|asked| *asked != 0.0)?, figure.allowed?)))
        .collect();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, LINE * lines.len() as u32 + MARGINS))
            .into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption("Emulated links: reached against asked", ("sans-serif", 18))
            .margin(10)
            .margin_right(30)
            .x_label_area_size(30)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(-REACH..REACH, 0.0..lines.len() as f64)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc("off by, %").draw()?;
        let name_style =
            ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
        for (at, (figure, asked, allowed)) in lines.iter().enumerate() {
            let y = (lines.len() - at) as f64 - 0.5;
            let off = |value: f64| ((value / asked - 1.0) * 100.0).clamp(-REACH, REACH);
            let range = [(off(allowed.0), y - 0.3), (off(allowed.1), y + 0.3)];
            chart.draw_series([Rectangle::new(range, RGBColor(205, 225, 205).filled())])?;
            let color = if figure.verdict == Some(Verdict::Yes) { RGBColor(20, 90, 40) } else { RED };
            let reached = off(figure.reached);
            if let Some(error) = figure.standard_error {
                let ends = [(off(figure.reached - error), y), (off(figure.reached + error), y)];
                chart.draw_series([PathElement::new(ends, color)])?;
            }
            chart.draw_series([Circle::new((reached, y), 4, color.filled())])?;
            let (x, y) = chart.backend_coord(&(-REACH, y));
            area.draw(&Text::new(figure.what.clone(), (x - 8, y), name_style.clone()))?;
        }
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_is_drawn() {
        assert!(draw(&[]).unwrap().contains("<svg"));
        assert!(draw(&[Figure::missing("rates", "no lab".into())]).unwrap().contains("<svg"));
    }
}

//! Pictures of figures that are curves in the papers.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// Size in pixels of a chart. Two of them stand side by side.
const CHART: (u32, u32) = (450, 330);
const BESIDE: usize = 2;
/// By how much an axis goes beyond the least and the greatest value, as a factor.
const BEYOND: f64 = 1.3;
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 120, 60),
    RGBColor(230, 140, 30),
    RGBColor(120, 80, 160),
    RGBColor(100, 100, 100),
];

/// A line of a chart, with its points in the order of x. Values are greater than 0.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart, whose axes are logarithmic.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chart {
    pub title: String,
    /// What the x axis has, and what the y axis has.
    pub axes: [&'static str; 2],
    pub curves: Vec<Curve>,
}

/// The least range of an axis that has all values. `None` without values.
fn range(values: impl Iterator<Item = f64> + Clone) -> Option<Range<f64>> {
    let (least, most) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
    Some(least / BEYOND..most * BEYOND)
}

/// Draws an SVG picture of the charts that have points.
///
/// # Errors
/// A chart can't be drawn.
pub(super) fn draw(charts: &[Chart]) -> anyhow::Result<String> {
    let charts: Vec<_> = charts
        .iter()
        .filter_map(|chart| {
            let points = || chart.curves.iter().flat_map(|curve| &curve.points);
            Some((chart, range(points().map(|(x, _)| *x))?, range(points().map(|(_, y)| *y))?))
        })
        .collect();
    let (columns, rows) = (charts.len().clamp(1, BESIDE), charts.len().div_ceil(BESIDE).max(1));
    let size = (CHART.0 * u32::try_from(columns)?, CHART.1 * u32::try_from(rows)?);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        for ((chart, x, y), place) in charts.into_iter().zip(area.split_evenly((rows, columns))) {
            one(chart, x.log_scale(), y.log_scale(), &place)?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn one<'a, X, Y>(chart: &Chart, x: X, y: Y, place: &DrawingArea<SVGBackend<'a>, Shift>) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut drawn = ChartBuilder::on(place)
        .caption(&chart.title, ("sans-serif", 15))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(35)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    let [x, y] = chart.axes;
    let label = |value: &f64| value.to_string();
    drawn
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for (curve, color) in chart.curves.iter().zip(COLORS.iter().cycle()) {
        let line = PathElement::new(curve.points.clone(), color.stroke_width(2));
        let legend = |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2));
        drawn.draw_series([line])?.label(&curve.name).legend(legend);
        drawn.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_without_points() {
        assert!(draw(&[]).unwrap().contains("<svg"));
        let curve = |points: &[(f64, f64)]| Curve { name: "a line".into(), points: points.to_vec() };
        let chart = |curve| Chart { title: "a chart".into(), axes: ["B", "ms"], curves: vec![curve] };
        assert!(!draw(&[chart(curve(&[]))]).unwrap().contains("a chart"));
        let svg = draw(&[chart(curve(&[(4.0, 5.0), (1024.0, 7.0)])), chart(curve(&[(1.0, 1.0)]))]).unwrap();
        assert_eq!(svg.matches("a chart").count(), 2);
        assert!(svg.contains("a line"));
    }
}

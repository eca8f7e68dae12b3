//! Values against a number.

use super::axis::Axis;
use super::{Lines, SIDE, WIDTH, colour};
use crate::svg::paper::{Paper, Path};
use crate::text::clean;

/// Of the ground of a panel, pixels.
pub const HEIGHT: f64 = 250.0;
/// Room for the numbers at the left.
const LEFT: f64 = 56.0;
/// Room for the names of the series at the right.
const NAMES: f64 = 160.0;

pub fn draw(paper: &mut Paper, lines: &Lines, top: f64) {
    let (left, right, bottom) = (SIDE + LEFT, WIDTH as f64 - SIDE - NAMES, top + HEIGHT);
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let across = Axis::of(points().map(|point| point.at), false, left, right);
    let values = points().flat_map(|point| point.value.into_iter().chain(point.span.into_iter().flatten()));
    let up = Axis::of(values, true, bottom, top);

    paper.rect("lane", left, top, right - left, HEIGHT);
    let mut grid = Path::default();
    for (value, label) in up.ticks(36.0, 0.0) {
        let y = up.at(value);
        grid.go(left, y).across(right);
        paper.text("dim right", left - 6.0, y + 4.0, &label);
    }
    paper.path("grid", &grid);
    // What is counted is whole.
    for (value, label) in across.ticks(48.0, 1.0) {
        paper.text("tick", across.at(value), bottom + 16.0, &label);
    }
    paper.text("tick", (left + right) / 2.0, bottom + 32.0, &lines.across);
    paper.text("label dim", left + 6.0, top + 14.0, &lines.up);
    let mut changes = Path::default();
    for change in &lines.changes {
        changes.go(across.at(*change), top).down(bottom);
    }
    paper.path("change", &changes);

    for (number, series) in lines.series.iter().enumerate() {
        let colour = colour(number);
        let (mut line, mut spans, mut cross) = <(Path, Path, Path)>::default();
        let mut begun = false;
        for point in &series.points {
            let x = across.at(point.at);
            let Some(value) = point.value else {
                cross
                    .go(x - 4.0, bottom - 8.0)
                    .to(x + 4.0, bottom)
                    .go(x - 4.0, bottom)
                    .to(x + 4.0, bottom - 8.0);
                continue;
            };
            match begun {
                true => line.to(x, up.at(value)),
                false => line.go(x, up.at(value)),
            };
            begun = true;
            if let Some([least, most]) = point.span {
                spans.go(x, up.at(least)).down(up.at(most));
            }
        }
        paper.path(&format!("line {colour}"), &line);
        paper.path(&format!("line {colour}"), &spans);
        paper.path(&format!("line cross {colour}"), &cross);
        for point in &series.points {
            if let Some(value) = point.value {
                let class = if point.hollow { "dot hollow" } else { "dot" };
                paper.circle(
                    &format!("{class} {colour}"),
                    across.at(point.at),
                    up.at(value),
                    3.0,
                );
            }
        }
        let y = top + 10.0 + 18.0 * number as f64;
        paper.rect(&format!("key {colour}"), right + 12.0, y - 8.0, 9.0, 9.0);
        paper.text("", right + 26.0, y, &clean(&series.name, 22));
    }
}

//! Values side by side on one axis.

use super::axis::Axis;
use super::{Rows, SIDE, Set, WIDTH, colour};
use crate::svg::paper::{Paper, Path};
use crate::text::clean;

/// Room for the names of the rows.
const LEFT: f64 = 230.0;
/// A legend above the rows.
const LEGEND: f64 = 20.0;

/// Height of one set in a row.
fn slot(rows: &Rows) -> f64 {
    if rows.bars { 13.0 } else { 34.0 }
}

/// Height of a row: its sets, and what is between it and the next.
fn row_height(rows: &Rows, sets: usize) -> f64 {
    sets.max(1) as f64 * slot(rows) + 9.0
}

/// Of a panel's ground and its legend.
pub fn height(rows: &Rows) -> f64 {
    let legend = if rows.series.is_empty() { 0.0 } else { LEGEND };
    legend
        + rows
            .rows
            .iter()
            .map(|row| row_height(rows, row.sets.len()))
            .sum::<f64>()
}

pub fn draw(paper: &mut Paper, rows: &Rows, top: f64) {
    let (left, right) = (SIDE + LEFT, WIDTH as f64 - SIDE);
    let bottom = top + height(rows);
    let sets = || rows.rows.iter().flat_map(|row| &row.sets);
    let values = sets().flat_map(|set| {
        let shown = set.values.iter().copied().chain(set.middle);
        shown.chain(set.span.into_iter().flatten())
    });
    // Bars have their values written behind them.
    let axis = Axis::of(values, true, left, right - if rows.bars { 44.0 } else { 0.0 });
    let mut y = top;
    for (number, name) in rows.series.iter().enumerate() {
        let x = left + 130.0 * number as f64;
        paper.rect(&format!("key {}", colour(number)), x, y, 9.0, 9.0);
        paper.text("", x + 14.0, y + 9.0, &clean(name, 18));
    }
    if !rows.series.is_empty() {
        y += LEGEND;
    }
    paper.rect("lane", left, y, right - left, bottom - y);
    let mut grid = Path::default();
    for (value, label) in axis.ticks(72.0, 0.0) {
        let x = axis.at(value);
        grid.go(x, y).down(bottom);
        paper.text("tick", x, bottom + 16.0, &label);
    }
    paper.path("grid", &grid);
    paper.text("tick", (left + right) / 2.0, bottom + 32.0, &rows.across);
    for row in &rows.rows {
        let height = row_height(rows, row.sets.len());
        paper.text("right", left - 8.0, y + height / 2.0 + 4.0, &clean(&row.name, 36));
        for (number, set) in row.sets.iter().enumerate() {
            let middle = y + 4.5 + slot(rows) * (number as f64 + 0.5);
            match rows.bars {
                true => bar(paper, set, &axis, middle),
                false => points(paper, set, &axis, middle, slot(rows)),
            }
        }
        y += height;
    }
}

/// A bar from zero, its value behind it, and least and most as a whisker.
fn bar(paper: &mut Paper, set: &Set, axis: &Axis, y: f64) {
    let Some(value) = set.middle.filter(|value| value.is_finite()) else {
        return;
    };
    let (zero, end) = (axis.at(0.0), axis.at(value));
    paper.rect(
        &format!("bar {}", colour(set.series)),
        zero.min(end),
        y - 5.0,
        (end - zero).abs(),
        10.0,
    );
    let mut last = zero.max(end);
    if let Some([least, most]) = set.span {
        let (from, to) = (axis.at(least), axis.at(most));
        let mut whisker = Path::default();
        whisker.go(from, y).across(to);
        paper.path("whisker", &whisker);
        last = last.max(from).max(to);
    }
    paper.text("dim", last + 5.0, y + 4.0, &short(value));
}

/// Every value as a dot, the span behind them, and the middle as a line.
fn points(paper: &mut Paper, set: &Set, axis: &Axis, y: f64, slot: f64) {
    let colour = colour(set.series);
    let half = slot / 2.0 - 3.0;
    if let Some([from, to]) = set.span {
        let (from, to) = (axis.at(from), axis.at(to));
        paper.rect(
            &format!("span {colour}"),
            from.min(to),
            y - half,
            (to - from).abs(),
            half * 2.0,
        );
    }
    if let Some(middle) = set.middle {
        let mut line = Path::default();
        line.go(axis.at(middle), y - half).down(y + half);
        paper.path(&format!("middle {colour}"), &line);
    }
    for (number, value) in set.values.iter().enumerate() {
        // Spread by number, so that equal values stay apart.
        let offset = ((number * 7 + 3) % 11) as f64 / 11.0 - 0.45;
        paper.circle(
            &format!("dot {colour}"),
            axis.at(*value),
            y + offset * half * 1.6,
            3.0,
        );
    }
}

/// A value with as many digits as say something.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{value:.0e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

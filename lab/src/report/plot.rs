//! Plots of an experiment: runs over time, and their distributions. SVG, one panel for each case, readable on light and dark ground:
//! the text and the ground follow the reader's scheme, the colours are of middle brightness.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{CaseReport, Report};
use crate::experiment::Run;
use crate::stats::median;

const WIDTH: u32 = 900;
const PANEL: u32 = 320;
/// Room for the title and three lines of the question.
const HEAD: u32 = 92;
/// Room for the names of the setups beside a panel.
const LEGEND: u32 = 150;
/// Characters of the question in a line.
const LINE: usize = 125;
/// Ground, text and lines, replaced by the reader's scheme through [`STYLE`].
const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const RULE: RGBColor = RGBColor(0xd0, 0xd7, 0xde);
/// Apart for all kinds of colour vision, after Okabe and Ito (2008), brought to a middle brightness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x7d, 0x85, 0x90),
    RGBColor(0xe0, 0x7b, 0x00),
    RGBColor(0x1f, 0x83, 0xd6),
    RGBColor(0x0f, 0x9d, 0x73),
    RGBColor(0xc7, 0x5b, 0xa0),
    RGBColor(0xa8, 0x8f, 0x12),
    RGBColor(0xd6, 0x4a, 0x2b),
    RGBColor(0x7a, 0x6c, 0xd9),
];
/// The dark scheme, by what the three colours above are written as.
const STYLE: &str = "<style>@media (prefers-color-scheme: dark) { [fill=\"#FFFFFF\"] { fill: #0d1117 } \
    text { fill: #e6edf3 } [stroke=\"#1F2328\"] { stroke: #e6edf3 } [stroke=\"#D0D7DE\"] { stroke: #30363d } }</style>";

/// Runs over time, and distributions.
pub fn plots(report: &Report) -> Result<[String; 2]> {
    let e = &report.experiment;
    let times = sheet(report, &format!("{}: every run", e.name), times)?;
    let distribution = sheet(
        report,
        &format!("{}: distribution of the runs that count", e.name),
        distribution,
    )?;
    Ok([times, distribution])
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Panel = fn(&Area<'_>, &Report, &CaseReport) -> Result<()>;

fn sheet(report: &Report, title: &str, panel: Panel) -> Result<String> {
    let mut text = String::new();
    {
        let height = HEAD + PANEL * report.cases.len() as u32;
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&GROUND).map_err(failed)?;
        let (head, body) = root.split_vertically(HEAD);
        head.draw(&Text::new(
            title.to_owned(),
            (16, 12),
            ("sans-serif", 22).into_font().color(&INK),
        ))
        .map_err(failed)?;
        for (number, line) in wrapped(&report.experiment.question, LINE)
            .iter()
            .take(3)
            .enumerate()
        {
            let place = (16, 40 + 17 * number as i32);
            let style = ("sans-serif", 15).into_font().color(&INK);
            head.draw(&Text::new(line.clone(), place, style))
                .map_err(failed)?;
        }
        for (case, area) in report
            .cases
            .iter()
            .zip(body.split_evenly((report.cases.len(), 1)))
        {
            panel(&area, report, case)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text.replacen('>', &format!(">\n{STYLE}"), 1))
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing: {error}")
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// The top of the time axis: all shown below it, whatever their setup; from zero, so that lengths compare.
fn top(seconds: impl Iterator<Item = f64>) -> f64 {
    let most = seconds.fold(0.0, f64::max);
    if most > 0.0 { most * 1.08 } else { 1.0 }
}

/// Seconds against the round, one line for each setup; dropped rounds hollow.
fn times(area: &Area<'_>, report: &Report, case: &CaseReport) -> Result<()> {
    let e = &report.experiment;
    let rounds = (e.drop + e.rounds) as f64;
    let most = top(case.runs.iter().map(|r| r.seconds));
    let (area, names) = area.split_horizontally(WIDTH - LEGEND);
    let mut chart = ChartBuilder::on(&area)
        .margin(14)
        .caption(&case.title, ("sans-serif", 17, &INK))
        .x_label_area_size(38)
        .y_label_area_size(56)
        .build_cartesian_2d(0.5..rounds + 0.5, 0.0..most)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RULE)
        .axis_style(INK)
        .label_style(("sans-serif", 15, &INK))
        .axis_desc_style(("sans-serif", 15, &INK))
        .x_desc("round")
        .y_desc("seconds")
        .x_labels((rounds as usize).clamp(1, 20))
        .x_label_formatter(&|x| {
            if x.fract() == 0.0 {
                format!("{x:.0}")
            } else {
                String::new()
            }
        })
        .draw()
        .map_err(failed)?;
    for change in &e.changes {
        let x = *change as f64 + 0.5;
        let line = PathElement::new([(x, 0.0), (x, most)], INK.stroke_width(1));
        chart.draw_series([line]).map_err(failed)?;
    }
    for (number, (setup, _)) in e.setups.iter().enumerate() {
        let mut runs: Vec<&Run> = case
            .runs
            .iter()
            .filter(|r| r.setup == *setup && r.aborted.is_none())
            .collect();
        runs.sort_by_key(|r| r.round);
        let points: Vec<(f64, f64)> = runs.iter().map(|r| (r.round as f64 + 1.0, r.seconds)).collect();
        let colour = colour(number);
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
            .map_err(failed)?;
        let dots = runs.iter().zip(points).map(|(run, point)| {
            let style = ShapeStyle {
                color: colour.into(),
                filled: run.round >= e.drop,
                stroke_width: 1,
            };
            Circle::new(point, 3, style)
        });
        chart.draw_series(dots).map_err(failed)?;
        let failed_runs = case
            .runs
            .iter()
            .filter(|r| r.setup == *setup && r.aborted.is_some());
        let crosses = failed_runs.map(|r| Cross::new((r.round as f64 + 1.0, 0.0), 6, colour.stroke_width(2)));
        chart.draw_series(crosses).map_err(failed)?;
    }
    for (number, (setup, _)) in e.setups.iter().enumerate() {
        let y = 60 + 20 * number as i32;
        let line = PathElement::new([(4, y), (22, y)], colour(number).stroke_width(3));
        names.draw(&line).map_err(failed)?;
        let style = ("sans-serif", 15).into_font().color(&INK);
        names
            .draw(&Text::new(setup.clone(), (28, y - 8), style))
            .map_err(failed)?;
    }
    Ok(())
}

/// `text` in lines of at most `width` characters, broken at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// One row for each setup: every run, and the quartiles with the median.
fn distribution(area: &Area<'_>, report: &Report, case: &CaseReport) -> Result<()> {
    let e = &report.experiment;
    let count = e.setups.len();
    let counts: Vec<Vec<f64>> = e
        .setups
        .iter()
        .map(|(setup, _)| {
            super::counted(e, setup, &case.runs)
                .iter()
                .map(|r| r.seconds)
                .collect()
        })
        .collect();
    let names: Vec<String> = e.setups.iter().map(|(name, _)| name.clone()).collect();
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(&case.title, ("sans-serif", 17, &INK))
        .x_label_area_size(38)
        .y_label_area_size(120)
        // The first setup at the top.
        .build_cartesian_2d(
            0.0..top(counts.iter().flatten().copied()),
            (count as f64 - 0.5)..-0.5,
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RULE)
        .axis_style(INK)
        .label_style(("sans-serif", 15, &INK))
        .axis_desc_style(("sans-serif", 15, &INK))
        .x_desc("seconds")
        .y_labels(count * 2)
        .y_label_formatter(
            &|y| match (y.fract() == 0.0 && *y >= 0.0).then(|| names.get(*y as usize)) {
                Some(Some(name)) => name.clone(),
                _ => String::new(),
            },
        )
        .draw()
        .map_err(failed)?;
    for (number, values) in counts.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
        let (row, colour) = (number as f64, colour(number));
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let quartiles = Rectangle::new(
            [(at(0.25), row - 0.24), (at(0.75), row + 0.24)],
            colour.mix(0.3).filled(),
        );
        chart.draw_series([quartiles]).map_err(failed)?;
        let middle = median(values);
        let line = PathElement::new([(middle, row - 0.3), (middle, row + 0.3)], colour.stroke_width(3));
        chart.draw_series([line]).map_err(failed)?;
        // Spread by number, so that equal values stay apart.
        let dots = values.iter().enumerate().map(|(i, v)| {
            let offset = ((i * 7 + 3) % 11) as f64 / 11.0 - 0.45;
            Circle::new((*v, row + offset * 0.4), 3, colour.filled())
        });
        chart.draw_series(dots).map_err(failed)?;
    }
    Ok(())
}

//! Plots of an experiment (SVG): every run over time, their distributions, and where it has them, cases of different memory and the
//! gains that others published.

use headstart_chart::figures::{Lines, Panel, Point, Row, Rows, Series, Set, Sheet, Shows, sheet};

use super::published::Gain;
use super::{CaseReport, Report, counted};
use crate::experiment::Run;
use crate::stats::median;

/// The plots of a report, each with the name of its file.
pub fn plots(report: &Report) -> Vec<(&'static str, String)> {
    let e = &report.experiment;
    let cases = |shows: &dyn Fn(&CaseReport) -> Shows| -> Vec<Panel> {
        let panel = |case: &CaseReport| Panel {
            title: case.title.clone(),
            shows: shows(case),
        };
        report.cases.iter().map(panel).collect()
    };
    let drawn = |what: &str, panels: Vec<Panel>| {
        sheet(&Sheet {
            title: format!("{}: {what}", e.name),
            text: e.question.clone(),
            panels,
        })
    };
    let times = cases(&|case| Shows::Lines(times(report, case)));
    let distribution = cases(&|case| Shows::Rows(distribution(report, case)));
    let mut plots = vec![
        ("times.svg", drawn("every run", times)),
        (
            "distribution.svg",
            drawn("distribution of the runs that count", distribution),
        ),
    ];
    if let Some(lines) = memory(report) {
        let panel = Panel {
            title: "Median, and least to most".into(),
            shows: Shows::Lines(lines),
        };
        plots.push(("memory.svg", drawn("by memory", vec![panel])));
    }
    plots
}

/// Gains beside those that others published.
pub fn gains(report: &Report, gains: &[Gain], source: &str) -> String {
    let bar = |series: usize, gain: Option<f64>| Set {
        series,
        middle: gain.map(|gain| gain * 100.0),
        ..Set::default()
    };
    let row = |gain: &Gain| Row {
        name: gain.name.clone(),
        sets: vec![bar(0, Some(gain.theirs)), bar(1, gain.ours)],
    };
    sheet(&Sheet {
        title: format!("{}: gains", report.experiment.name),
        text: format!("{} Published: {source}.", report.experiment.question),
        panels: vec![Panel {
            title: "Less time than without, on other machines and here".into(),
            shows: Shows::Rows(Rows {
                across: "% of the time without".into(),
                bars: true,
                series: vec!["published".into(), "here".into()],
                rows: gains.iter().map(row).collect(),
            }),
        }],
    })
}

/// Seconds against the round; dropped rounds hollow, aborted runs crossed.
fn times(report: &Report, case: &CaseReport) -> Lines {
    let e = &report.experiment;
    let point = |run: &Run| Point {
        at: run.round as f64 + 1.0,
        value: run.aborted.is_none().then_some(run.seconds),
        hollow: run.round < e.drop,
        ..Point::default()
    };
    let series = |name: &String| {
        let mut runs: Vec<&Run> = case.runs.iter().filter(|run| run.setup == *name).collect();
        runs.sort_by_key(|run| run.round);
        Series {
            name: name.clone(),
            points: runs.into_iter().map(point).collect(),
        }
    };
    Lines {
        across: "round".into(),
        up: "seconds".into(),
        changes: e.changes.iter().map(|round| *round as f64 + 0.5).collect(),
        series: e.setups.iter().map(|(name, _)| series(name)).collect(),
    }
}

/// One row for each setup: every run, and the quartiles with the median.
fn distribution(report: &Report, case: &CaseReport) -> Rows {
    let e = &report.experiment;
    let row = |(number, (name, _)): (usize, &(String, String))| {
        let mut values: Vec<f64> = counted(e, name, &case.runs)
            .iter()
            .map(|run| run.seconds)
            .collect();
        let middle = Some(median(&values)).filter(|_| !values.is_empty());
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            values
                .get((values.len().saturating_sub(1) as f64 * share).round() as usize)
                .copied()
        };
        Row {
            name: name.clone(),
            sets: vec![Set {
                series: number,
                middle,
                span: at(0.25).zip(at(0.75)).map(|(low, high)| [low, high]),
                values,
            }],
        }
    };
    Rows {
        across: "seconds".into(),
        rows: e.setups.iter().enumerate().map(row).collect(),
        ..Rows::default()
    }
}

/// Seconds against memory, where the cases differ in that.
fn memory(report: &Report) -> Option<Lines> {
    let e = &report.experiment;
    let mut cases: Vec<(u64, &CaseReport)> = (report.cases.iter())
        .filter_map(|case| Some((*e.memory_mb.get(&case.name)?, case)))
        .collect();
    cases.sort_by_key(|(memory, _)| *memory);
    if cases.windows(2).all(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let series = |name: &String| {
        let point = |(memory, case): &(u64, &CaseReport)| {
            let own = case.setup(name).filter(|own| own.n > 0)?;
            Some(Point {
                at: *memory as f64,
                value: Some(own.median),
                span: Some([own.min, own.max]),
                ..Point::default()
            })
        };
        Series {
            name: name.clone(),
            points: cases.iter().filter_map(point).collect(),
        }
    };
    Some(Lines {
        across: "memory, MiB".into(),
        up: "seconds".into(),
        changes: Vec::new(),
        series: e.setups.iter().map(|(name, _)| series(name)).collect(),
    })
}

//! Times of an experiment as bars: without, with a setup, and warm, case by case.

use headstart_chart::figures::{Panel, Row, Rows, Set, Sheet, Shows, sheet};

use super::kept::{Kept, KeptCase};

/// What is shown of each case, and what it is called.
fn shown<'a>(kept: &'a Kept, with: &'a str) -> Vec<(&'a str, &'a str)> {
    let all = [
        (Some(kept.base.as_str()), "cold"),
        (Some(with), with),
        (kept.warm.as_deref(), "warm"),
    ];
    all.into_iter()
        .filter_map(|(setup, name)| Some((setup?, name)))
        .collect()
}

/// The bars (SVG): medians, with the least and the most.
pub fn bars(kept: &Kept, with: &str) -> String {
    let shown = shown(kept, with);
    let set = |case: &KeptCase, series: usize, setup: &str| {
        let own = case.setup(setup)?;
        Some(Set {
            series,
            middle: Some(own.median_s),
            span: Some([own.min_s, own.max_s]),
            ..Set::default()
        })
    };
    let row = |case: &KeptCase| Row {
        name: case.shown().to_owned(),
        sets: (shown.iter().enumerate())
            .filter_map(|(series, (setup, _))| set(case, series, setup))
            .collect(),
    };
    sheet(&Sheet {
        title: format!("{} of build {}", kept.experiment, kept.commit),
        text: kept.question.clone(),
        panels: vec![Panel {
            title: format!(
                "Medians of {} rounds; whiskers from the least to the most",
                kept.rounds
            ),
            shows: Shows::Rows(Rows {
                across: "seconds".into(),
                bars: true,
                series: shown.iter().map(|(_, name)| (*name).to_owned()).collect(),
                rows: kept.case.iter().map(row).collect(),
            }),
        }],
    })
}

/// The bars' words, for whoever does not see them.
pub fn words(kept: &Kept, with: &str) -> String {
    let names: Vec<&str> = shown(kept, with).into_iter().map(|(_, name)| name).collect();
    format!(
        "{}: seconds {}, case by case, as in the table below",
        kept.experiment,
        names.join(", ")
    )
}

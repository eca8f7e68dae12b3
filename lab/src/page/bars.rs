//! Times as bars (SVG), in the reader's scheme, light or dark.

use std::fmt::Write;

use super::published_result::{KeptCase, KeptSetup, PublishedResult};

const WIDTH: f64 = 900.0;
/// Where bars begin: left of it are the names of the rows.
const LEFT: f64 = 240.0;
/// The longest bar, or its whisker; right of it there is room for a value.
const LONGEST: f64 = 580.0;
/// Height of a bar with the gap to the next, and what is between two rows.
const BAR: f64 = 15.0;
const GAP: f64 = 10.0;

pub(super) const STYLE: &str = "text{font:12px system-ui,\"Segoe UI\",\"DejaVu Sans\",sans-serif;fill:#1f2328}.title{font-weight:600}.name{text-anchor:end}\
    .ground{fill:#fff}.s0{fill:#7d8590}.s1{fill:#0072b2}.s2{fill:#009e73}.s3{fill:#e07b00}.span{stroke:#1f2328}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.span{stroke:#e6edf3}}";

/// Bars side by side.
pub struct Row<'a> {
    /// What they are of.
    pub name: String,
    /// Each with the number of its colour, and its times: a bar of the median, a whisker from the least to
    /// the most.
    pub bars: Vec<(usize, &'a KeptSetup)>,
}

/// The bars of an experiment: without, with a setup, and warm, case by case.
pub fn bars(kept: &PublishedResult, with: &str) -> String {
    let shown = shown(kept, with);
    let title = format!(
        "{} of build {}: seconds, medians of {} rounds; whiskers from the least to the most",
        kept.experiment, kept.commit, kept.rounds
    );
    let legend: Vec<&str> = shown.iter().map(|(_, name)| *name).collect();
    let rows: Vec<Row<'_>> = kept.case.iter().map(|case| row(case, &shown)).collect();
    svg(&title, &legend, &rows)
}

fn row<'a>(case: &'a KeptCase, shown: &[(&str, &str)]) -> Row<'a> {
    let setups = shown.iter().enumerate();
    Row {
        name: case.shown().to_owned(),
        bars: setups
            .filter_map(|(series, (setup, _))| Some((series, case.setup(setup)?)))
            .collect(),
    }
}

/// The bars' words, for whoever does not see them.
pub fn words(kept: &PublishedResult, with: &str) -> String {
    let names: Vec<&str> = shown(kept, with).into_iter().map(|(_, name)| name).collect();
    format!(
        "{}: seconds {}, case by case, as in the table below",
        kept.experiment,
        names.join(", ")
    )
}

/// What is shown of each case, and what it is called.
fn shown<'a>(kept: &'a PublishedResult, with: &'a str) -> Vec<(&'a str, &'a str)> {
    let labels = [
        (Some(kept.base.as_str()), "cold"),
        (Some(with), with),
        (kept.warm.as_deref(), "warm"),
    ];
    labels
        .into_iter()
        .filter_map(|(setup, name)| Some((setup?, name)))
        .collect()
}

/// A picture of rows on one scale from zero, each bar with its value. `legend` names the colours where the
/// rows' names do not.
pub fn svg(title: &str, legend: &[&str], rows: &[Row<'_>]) -> String {
    let most = rows.iter().flat_map(|row| &row.bars);
    let most = most.map(|(_, it)| it.max_s).fold(f64::MIN_POSITIVE, f64::max);
    let top = if legend.is_empty() { 36.0 } else { 60.0 };
    let heights = rows.iter().map(|row| BAR * row.bars.len() as f64 + GAP);
    let height = top + heights.sum::<f64>() + 6.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"16\" y=\"22\">{}</text>\n",
        xml(title)
    );
    for (series, name) in legend.iter().enumerate() {
        let x = LEFT + 130.0 * series as f64;
        let _ = writeln!(
            out,
            "<rect class=\"s{series}\" x=\"{x}\" y=\"36\" width=\"10\" height=\"10\"/><text x=\"{}\" y=\"45\">{}</text>",
            x + 16.0,
            xml(name)
        );
    }
    let mut y = top;
    for row in rows {
        let height = BAR * row.bars.len() as f64;
        let _ = writeln!(
            out,
            "<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
            LEFT - 10.0,
            y + height / 2.0 + 4.0,
            xml(&row.name)
        );
        for (series, it) in &row.bars {
            let at = |seconds: f64| (LONGEST * seconds / most).round();
            let middle = y + BAR / 2.0;
            let _ = writeln!(
                out,
                "<rect class=\"s{}\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\"/><path class=\"span\" d=\"M{} {middle}H{}\"/>\
                 <text x=\"{}\" y=\"{}\">{:.2} s</text>",
                series % 4,
                y + 1.5,
                at(it.median_s),
                BAR - 3.0,
                LEFT + at(it.min_s),
                LEFT + at(it.max_s),
                LEFT + at(it.max_s) + 8.0,
                middle + 4.0,
                it.median_s
            );
            y += BAR;
        }
        y += GAP;
    }
    out += "</svg>\n";
    out
}

/// Text for the content of an XML element.
pub(super) fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

//! Times with headstart over times without, for a reader who asks whether it slows a machine down: tables,
//! one picture of all ratios of a page, and the answer in a sentence.

use std::fmt::Write;

use super::bars::{STYLE, xml};
use super::missed;
use super::published_result::{KeptCase, KeptGoal, KeptSetup, PublishedResult};
use super::tables::{beside, notes, value};
use crate::experiment::Figure;

/// The setups of an experiment that are held against its base.
pub struct Held<'a> {
    /// What is kept of the experiment.
    pub kept: &'a PublishedResult,
    /// Names of setups.
    pub setups: Vec<&'a str>,
}

/// One setup of one case beside the base.
struct Ratio<'a> {
    case: &'a KeptCase,
    base: &'a KeptSetup,
    own: &'a KeptSetup,
    goal: Option<&'a KeptGoal>,
}

impl<'a> Held<'a> {
    /// What of these setups was measured, case by case.
    fn ratios(&self) -> Vec<Ratio<'a>> {
        let mut ratios = Vec::new();
        for case in &self.kept.case {
            let own = self.setups.iter().filter_map(|name| case.setup(name));
            for own in own.filter(|own| !own.median_ratio.is_empty()) {
                let of_setup = |goal: &&KeptGoal| goal.setup == own.setup && goal.figure == Figure::Ratio;
                ratios.extend(case.setup(&self.kept.base).map(|base| Ratio {
                    case,
                    base,
                    own,
                    goal: case.goal.iter().find(of_setup),
                }));
            }
        }
        ratios
    }
}

impl Ratio<'_> {
    fn missed(&self) -> bool {
        self.goal.is_some_and(KeptGoal::missed)
    }
}

/// One row for each setup of each case.
pub fn table(held: &Held<'_>) -> String {
    let ratios = held.ratios();
    let has_setups = held.setups.len() > 1;
    let is_told = ratios.iter().any(|ratio| ratio.own.told.is_some());
    let line = |name: &str, setup: &str, figures: &str, told: &str| {
        let setup = if has_setups {
            format!(" {setup} |")
        } else {
            String::new()
        };
        let told = if is_told {
            format!(" {told} |")
        } else {
            String::new()
        };
        let name = if name.is_empty() {
            String::new()
        } else {
            format!(" {name}")
        };
        format!("|{name} |{setup} {figures} |{told}\n")
    };
    let figures = "n | without, s | with, s (least–most) | ratio (95 %) | goal";
    let head = line("", "setup", figures, "headstart says");
    let columns = head.matches('|').count() - 1;
    let mut text = format!("{head}|{}\n", "---|".repeat(columns));
    for ratio in &ratios {
        let own = ratio.own;
        let [shown, bound] = match ratio.goal {
            Some(goal) => beside(goal, &own.median_ratio),
            None => [value(Figure::Ratio, &own.median_ratio), "–".to_owned()],
        };
        let figures = format!(
            "{} | {:.2} | {:.2} ({:.2}–{:.2}) | {shown} | {bound}",
            own.n, ratio.base.median_s, own.median_s, own.min_s, own.max_s
        );
        let told = own.told.as_deref().unwrap_or("–");
        text += &line(ratio.case.shown(), &own.setup, &figures, told);
    }
    text + &notes(held.kept)
}

/// How many of the page's comparisons meet their goals, how many experiments were not made, and the goals
/// that are missed.
pub fn answer(measured: &[Held<'_>], unmeasured: usize) -> String {
    let ratios: Vec<Ratio<'_>> = measured.iter().flat_map(Held::ratios).collect();
    let goals = ratios.iter().filter(|ratio| ratio.goal.is_some()).count();
    let missed = ratios.iter().filter(|ratio| ratio.missed()).count();
    let mut text = match (goals, missed) {
        (0, _) => "No comparison with a goal was measured yet.".to_owned(),
        (1, 0) => "The one comparison that was measured meets its goal.".to_owned(),
        (_, 0) => format!("All {goals} comparisons that were measured meet their goals."),
        _ => format!(
            "{} of {goals} comparisons that were measured meet their goals.",
            goals - missed
        ),
    };
    if unmeasured > 0 {
        let _ = write!(text, " Experiments not made yet: {unmeasured}.");
    }
    if missed > 0 {
        let kept: Vec<PublishedResult> = measured.iter().map(|held| held.kept.clone()).collect();
        text += "\n\n";
        text += &missed::missed(&kept);
    }
    text
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 840.0;
const ROW: f64 = 17.0;
const TOP: f64 = 62.0;
/// What stands at the right end at least, and the widest that is drawn: a wider interval ends there.
const LEAST_AT_RIGHT: f64 = 1.1;
const MOST_AT_RIGHT: f64 = 2.0;

/// All ratios as points with their intervals, on one scale from zero with a line at 1.
pub fn picture(measured: &[Held<'_>]) -> String {
    let rows: Vec<(&Held<'_>, Ratio<'_>)> = measured
        .iter()
        .flat_map(|held| held.ratios().into_iter().map(move |ratio| (held, ratio)))
        .collect();
    let ends = rows.iter().flat_map(|(_, ratio)| &ratio.own.median_ratio);
    let most = ends.copied().fold(LEAST_AT_RIGHT, f64::max).min(MOST_AT_RIGHT);
    let at = |ratio: f64| LEFT + (RIGHT - LEFT) * (ratio.clamp(0.0, most) / most);
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + 14.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <style>{STYLE}.met{{fill:#009e73}}.missed{{fill:#e07b00}}.small{{font-size:11px}}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"16\" y=\"22\">Time with headstart / time without: median and 95 % interval; left of the line is faster</text>\n"
    );
    for mark in [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0] {
        if mark <= most {
            let x = at(mark).round();
            let opacity = if mark == 1.0 { 1.0 } else { 0.2 };
            let _ = writeln!(
                out,
                "<path class=\"span\" opacity=\"{opacity}\" d=\"M{x} {}V{bottom}\"/><text class=\"small\" text-anchor=\"middle\" x=\"{x}\" y=\"46\">{mark}</text>",
                TOP - 10.0
            );
        }
    }
    for (number, (held, ratio)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        let name = match held.setups.len() {
            1 => format!("{} ({})", ratio.case.shown(), held.kept.experiment),
            _ => format!(
                "{}: {} ({})",
                ratio.case.shown(),
                ratio.own.setup,
                held.kept.experiment
            ),
        };
        let middle = ratio.own.median_ratio[0];
        let [low, high] = match ratio.own.median_ratio[..] {
            [_, low, high] => [low, high],
            _ => [middle, middle],
        };
        let class = if ratio.missed() { "missed" } else { "met" };
        let _ = writeln!(
            out,
            "<text class=\"name small\" x=\"{}\" y=\"{}\">{}</text><path class=\"span\" d=\"M{:.0} {y}H{:.0}\"/>\
             <circle class=\"{class}\" cx=\"{:.0}\" cy=\"{y}\" r=\"4\"/><text class=\"small\" x=\"{}\" y=\"{}\">{middle:.2}</text>",
            LEFT - 10.0,
            y + 4.0,
            xml(&name),
            at(low),
            at(high),
            at(middle),
            RIGHT + 12.0,
            y + 4.0,
        );
    }
    out += "</svg>\n";
    out
}

//! Goals that are missed: one by one, and in short.

use super::published_result::{KeptCase, KeptGoal, PublishedResult};
use super::tables::{bound, value};

/// A figure that has a goal, and whose it is.
struct Judged<'a> {
    experiment: &'a str,
    case: &'a KeptCase,
    goal: &'a KeptGoal,
}

impl Judged<'_> {
    /// How far the figure is from its goal.
    fn distance(&self) -> f64 {
        let value = self.goal.value.first().copied().unwrap_or(f64::INFINITY);
        value / self.goal.at_most
    }

    /// Whether another is the same goal, of another case.
    fn alike(&self, other: &Judged<'_>) -> bool {
        let figure_and_goal = |judged: &Judged<'_>| (judged.goal.figure, judged.goal.at_most);
        self.experiment == other.experiment
            && self.goal.setup == other.goal.setup
            && figure_and_goal(self) == figure_and_goal(other)
    }
}

/// Every figure that has a goal and was measured.
fn judged(results: &[PublishedResult]) -> Vec<Judged<'_>> {
    let cases = results
        .iter()
        .flat_map(|kept| kept.case.iter().map(|case| (kept.experiment.as_str(), case)));
    let goals =
        cases.flat_map(|(experiment, case)| case.goal.iter().map(move |goal| (experiment, case, goal)));
    goals
        .filter(|(_, _, goal)| goal.met.is_some())
        .map(|(experiment, case, goal)| Judged {
            experiment,
            case,
            goal,
        })
        .collect()
}

/// Those that miss it, the furthest first.
fn furthest_first(results: &[PublishedResult]) -> Vec<Judged<'_>> {
    let mut missed = judged(results);
    missed.retain(|judged| judged.goal.missed());
    missed.sort_by(|a, b| b.distance().total_cmp(&a.distance()));
    missed
}

/// A table, or what stands in the place of an empty one.
fn table(head: &str, rows: &[String]) -> String {
    match rows {
        [] => "Every goal is met.\n".to_owned(),
        rows => format!("{head}\n{}", rows.concat()),
    }
}

/// Every goal that is missed, the figure that is furthest from its goal first.
pub fn missed(results: &[PublishedResult]) -> String {
    let row = |missed: &Judged<'_>| {
        format!(
            "| {} ({}: {}) | {} | {} | {} |\n",
            missed.case.shown(),
            missed.experiment,
            missed.goal.setup,
            missed.goal.figure.name(),
            value(missed.goal.figure, &missed.goal.value),
            bound(missed.goal)
        )
    };
    let rows: Vec<String> = furthest_first(results).iter().map(row).collect();
    table(
        "| missed | figure | measured (95 %) | goal |\n|---|---|---|---|",
        &rows,
    )
}

/// The same in short: one row for all cases of an experiment that miss one goal, with the case that is
/// furthest from it.
pub fn furthest(results: &[PublishedResult]) -> String {
    let (every, missed) = (judged(results), furthest_first(results));
    let mut rows = Vec::new();
    for (number, furthest) in missed.iter().enumerate() {
        if missed.iter().take(number).any(|other| other.alike(furthest)) {
            continue;
        }
        let count = |list: &[Judged<'_>]| list.iter().filter(|other| other.alike(furthest)).count();
        rows.push(format!(
            "| {}: {} | {} | {} | {} of {} | {}, {} |\n",
            furthest.experiment,
            furthest.goal.setup,
            furthest.goal.figure.name(),
            bound(furthest.goal),
            count(&missed),
            count(&every),
            value(furthest.goal.figure, &furthest.goal.value),
            furthest.case.shown(),
        ));
    }
    table(
        "| experiment: setup | figure | goal | missed | furthest (95 %) |\n|---|---|---|---|---|",
        &rows,
    )
}

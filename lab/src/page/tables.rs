//! Tables of a page in Markdown, from what was kept.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::published_result::{KeptCase, KeptGoal, KeptSetup, PublishedResult};
use crate::experiment::Figure;
use crate::setup::EARLIER;
use headstart_model::floor::Above;

/// In the place of what there is not.
const NONE: &str = "–";

/// Starts and boots in short: one row for each case.
pub fn brief(kept: &PublishedResult, with: &str) -> String {
    let mut text = format!(
        "| | cold, s | {with}, s | warm, s | R (95 %) | L* (95 %) | goal | own time, s |\n|---|---|---|---|---|---|---|---|\n"
    );
    for case in &kept.case {
        let Some(own) = case.setup(with) else { continue };
        let [star, star_goal] = goal(case, with, Figure::AboveFloor, &own.above_floor);
        let own_time = own.above_s.first();
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {} | {} | {star} | {star_goal} | {} |",
            case.shown(),
            median(case, Some(&kept.base)),
            own.median_s,
            median(case, kept.warm.as_deref()),
            percent(&own.recovered),
            own_time.map_or(NONE.to_owned(), |time| format!("{time:.2}")),
        );
    }
    text + &notes(kept)
}

/// Three cells of a row: the first figure of `with` in a case for which there is a goal, the goal, and the
/// build.
pub fn judged(kept: &PublishedResult, with: &str, case: &str) -> Result<String> {
    let same_case = kept.case.iter().find(|other| other.shown() == case);
    let goal = same_case.and_then(|case| case.goal.iter().find(|goal| goal.setup == with));
    let goal = goal.with_context(|| format!("{}: no goal for {with} in a case {case:?}", kept.experiment))?;
    let [shown, bound] = beside(goal, &goal.value);
    Ok(format!("{shown} | {bound} | {}", kept.commit))
}

/// Starts and boots: one row for each case, those that miss a goal first.
pub fn speed(kept: &PublishedResult, with: &str) -> String {
    let mut text = format!(
        "| | n | cold, s | {with}, s (least–most) | warm, s | over the earlier build (95 %) | R (95 %) | L (95 %) | L* (95 %) | goal | read beyond cold | goal |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for case in missed_first(kept, with) {
        let Some(own) = case.setup(with) else { continue };
        let [best, best_goal] = goal(case, with, Figure::AboveBest, &own.above_best);
        let [star, star_goal] = goal(case, with, Figure::AboveFloor, &own.above_floor);
        // Of one that was kept when no floor was known.
        let best_goal = [star_goal, best_goal].into_iter().find(|goal| goal != NONE);
        let best_goal = best_goal.unwrap_or(NONE.into());
        let more: Vec<f64> = own.more_read.into_iter().collect();
        let [more, more_goal] = goal(case, with, Figure::MoreRead, &more);
        let over = goal(case, with, Figure::OverEarlier, &own.over_earlier)[0].clone();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} ({:.2}–{:.2}) | {} | {over} | {} | {best} | {star} | {best_goal} | {more} | {more_goal} |",
            case.shown(),
            own.n,
            median(case, Some(&kept.base)),
            own.median_s,
            own.min_s,
            own.max_s,
            median(case, kept.warm.as_deref()),
            percent(&own.recovered),
        );
    }
    text + &notes(kept)
}

/// Where the time above the floor went, one row for each case of which that is known.
pub fn above(kept: &PublishedResult, with: &str) -> String {
    let names = Above::default().parts().map(|(name, _)| name);
    let mut text = format!(
        "| | floor, s | took, s | {} |\n|---|---|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for case in &kept.case {
        let Some(own) = case.setup(with).filter(|own| !own.above_s.is_empty()) else {
            continue;
        };
        let floor = own.floor_s.map_or(NONE.into(), |floor| format!("{floor:.2}"));
        let parts: Vec<String> = own.above_s.iter().map(|part| format!("{part:.2}")).collect();
        let _ = writeln!(
            text,
            "| {} | {floor} | {:.2} | {} |",
            case.shown(),
            own.median_s,
            parts.join(" | ")
        );
    }
    let below: usize = kept
        .case
        .iter()
        .filter_map(|case| case.setup(with))
        .map(|own| own.below_floor)
        .sum();
    if below > 0 {
        let _ = writeln!(
            text,
            "\nNote: runs shorter than their floor, which is too high there: {below}."
        );
    }
    text
}

/// What all setups took, one row for each case: seconds, and the requests that the disk was asked for.
pub fn setups(kept: &PublishedResult) -> String {
    let mut text = "| |".to_owned();
    let names = kept.case.first().map_or(&[][..], |case| &case.setup);
    for setup in names {
        let _ = write!(text, " {}, s (least–most); requests |", setup.setup);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(names.len()));
    for case in kept.case.iter().filter(|case| case.setup.len() == names.len()) {
        let _ = write!(text, "| {} |", case.shown());
        for setup in &case.setup {
            let _ = write!(
                text,
                " {:.2} ({:.2}–{:.2}); {:.0} |",
                setup.median_s, setup.min_s, setup.max_s, setup.reads
            );
        }
        text.push('\n');
    }
    text + &notes(kept)
}

/// What other setups gain, as shares of what `of` gains: one row for each case, bold where a goal is missed.
pub fn shares(kept: &PublishedResult, of: &str) -> String {
    let setups = kept.case.first().map_or(&[][..], |case| &case.setup);
    let others = setups.iter().map(|setup| setup.setup.as_str());
    let is_shown = |name: &&str| ![of, &kept.base].contains(name) && Some(*name) != kept.warm.as_deref();
    let others: Vec<&str> = others.filter(is_shown).collect();
    let mut text = format!("| | {}, s | {of}, s |", kept.base);
    for name in &others {
        let goal = kept.case.first().and_then(|case| gain_lost(case, name));
        let goal = goal.map(|goal| format!(" (≥ {:.0} %)", (1.0 - goal.at_most) * 100.0));
        let _ = write!(text, " {name}{} |", goal.unwrap_or_default());
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(others.len() + 2));
    for case in &kept.case {
        let [cold, own] = [kept.base.as_str(), of].map(|name| median(case, Some(name)));
        let cells: Vec<String> = others.iter().map(|name| share(case, name, of)).collect();
        let _ = writeln!(
            text,
            "| {} | {cold} | {own} | {} |",
            case.shown(),
            cells.join(" | ")
        );
    }
    text + &notes(kept)
}

/// The goal of how much of another setup's gain this one may not reach.
fn gain_lost<'a>(case: &'a KeptCase, name: &str) -> Option<&'a KeptGoal> {
    let is_own = |goal: &&KeptGoal| goal.setup == name && goal.figure == Figure::GainLost;
    case.goal.iter().find(is_own)
}

/// What `name` gains as a share of what `of` gains.
fn share(case: &KeptCase, name: &str, of: &str) -> String {
    let gain = |name: &str| case.setup(name)?.recovered.first().copied();
    let share = gain(name).zip(gain(of)).map(|(own, of)| own / of);
    match gain_lost(case, name) {
        None => percent(share.as_slice()),
        Some(goal) => {
            let mut reached: Vec<f64> = goal.value.iter().map(|lost| 1.0 - lost).collect();
            // The ends of the interval change places.
            if let [_, low, high] = &mut reached[..] {
                std::mem::swap(low, high);
            }
            let shown = percent(&reached);
            if goal.missed() {
                format!("**{shown}**")
            } else {
                shown
            }
        }
    }
}

/// Starts with everything in memory: what they cost.
pub fn cost(kept: &PublishedResult, with: &str) -> String {
    let mut text = "| all in memory | pairs | bare, ms | `headstart run`, ms | more, ms (95 %) | goal, ms | ratio (95 %) | goal | earlier build: more, ms (95 %) |\n\
         |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for case in missed_first(kept, with) {
        let (Some(bare), Some(own)) = (case.setup(&kept.base), case.setup(with)) else {
            continue;
        };
        let [more, more_goal] =
            goal(case, with, Figure::ExtraMs, &milliseconds(own)).map(|cell| cell.replace(" ms", ""));
        let [ratio, ratio_goal] = goal(case, with, Figure::Ratio, &own.median_ratio);
        let before = case.setup(&format!("{with}{EARLIER}"));
        let before = before.map_or(NONE.to_owned(), |s| {
            value(Figure::ExtraMs, &milliseconds(s)).replace(" ms", "")
        });
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {:.1} | {more} | {more_goal} | {ratio} | {ratio_goal} | {before} |",
            case.shown(),
            own.n.min(bare.n),
            bare.median_s * 1000.0,
            own.median_s * 1000.0,
        );
    }
    text + &notes(kept)
}

/// The median time of a setup, if there is one.
fn median(case: &KeptCase, setup: Option<&str>) -> String {
    let setup = setup.and_then(|name| case.setup(name));
    setup.map_or(NONE.to_owned(), |s| format!("{:.2}", s.median_s))
}

/// What a reader must know of the runs, below their table.
pub fn notes(kept: &PublishedResult) -> String {
    let aborted = |case: &KeptCase| case.setup.iter().map(|s| s.aborted).sum::<usize>();
    let aborted: usize = kept.case.iter().map(aborted).sum();
    let aborted = (aborted > 0).then(|| format!("aborted runs, in no figure: {aborted}"));
    let notes: Vec<&str> = kept.notes.iter().chain(&aborted).map(String::as_str).collect();
    match notes.is_empty() {
        true => String::new(),
        false => format!("\nNote: {}.\n", notes.join("; ")),
    }
}

/// The cases of `kept`, those first in which `with` misses a goal.
fn missed_first<'a>(kept: &'a PublishedResult, with: &str) -> Vec<&'a KeptCase> {
    let mut cases: Vec<&KeptCase> = kept.case.iter().collect();
    let missed = |case: &KeptCase| {
        case.goal
            .iter()
            .filter(|goal| goal.setup == with && goal.missed())
            .count()
    };
    cases.sort_by_key(|case| std::cmp::Reverse(missed(case)));
    cases
}

/// A figure, bold where it misses its goal, and the goal beside it.
fn goal(case: &KeptCase, with: &str, figure: Figure, measured: &[f64]) -> [String; 2] {
    let own = case
        .goal
        .iter()
        .find(|goal| goal.setup == with && goal.figure == figure);
    match own {
        Some(goal) => beside(goal, measured),
        None => [value(figure, measured), NONE.to_owned()],
    }
}

/// The same where there is a goal.
pub fn beside(goal: &KeptGoal, measured: &[f64]) -> [String; 2] {
    let shown = value(goal.figure, measured);
    match goal.missed() {
        true => [format!("**{shown}**"), bound(goal)],
        false => [shown, bound(goal)],
    }
}

/// A goal for people.
pub fn bound(goal: &KeptGoal) -> String {
    format!("≤ {}", goal.figure.shown(goal.at_most))
}

/// A value with its interval, if it has one.
pub fn value(figure: Figure, list: &[f64]) -> String {
    match *list {
        [value, low, high] => format!(
            "{} ({}…{})",
            figure.shown(value),
            figure.shown(low).trim_end_matches([' ', 'm', 's', '%']),
            figure.shown(high).trim_end_matches([' ', 'm', 's', '%'])
        ),
        [value, ..] => figure.shown(value),
        [] => NONE.to_owned(),
    }
}

fn percent(list: &[f64]) -> String {
    match *list {
        [value, low, high] => format!("{:.0} % ({:.0}…{:.0})", value * 100.0, low * 100.0, high * 100.0),
        [value, ..] => format!("{:.0} %", value * 100.0),
        [] => NONE.to_owned(),
    }
}

fn milliseconds(setup: &KeptSetup) -> Vec<f64> {
    setup
        .median_less_base_s
        .iter()
        .map(|seconds| seconds * 1000.0)
        .collect()
}

//! What `headstart estimate` reports.

use crate::human::{duration, printable};
use crate::table::{Table, section};
use serde::Serialize;

/// The document: what reading ahead could spare of the starts of some days.
#[derive(Debug, Serialize)]
pub struct Estimate {
    /// The days.
    pub days: u16,
    /// By key, what could be spared most first.
    pub programs: Vec<ProgramEstimate>,
}

/// Of one key.
#[derive(Debug, Serialize)]
pub struct ProgramEstimate {
    /// The key.
    pub key: String,
    /// Cold starts that were recorded and not read ahead.
    pub starts: usize,
    /// How long they waited for devices, nanoseconds.
    pub waited_ns: u64,
    /// How much of that could be spared at best, nanoseconds.
    pub spared_ns: u64,
    /// Whether the least time of its start is known; if not nothing is said to be spared.
    pub is_floor_known: bool,
}

/// Programs that are shown unless all are wanted.
const SHOWN: usize = 5;

/// For people.
pub fn text(estimate: &Estimate, all: bool) -> String {
    let days = match estimate.days {
        1 => "day".to_owned(),
        days => format!("{days} days"),
    };
    if estimate.programs.is_empty() {
        return format!(
            "No cold start without a replay was recorded in the last {days}.\n\
             The daemon records cold starts of programs: systemctl status headstartd.\n\
             To have it read nothing ahead meanwhile: observe = true, headstart.toml(5).\n"
        );
    }
    let sum = |of: fn(&ProgramEstimate) -> u64| duration(estimate.programs.iter().map(of).sum());
    let starts: usize = estimate.programs.iter().map(|program| program.starts).sum();
    let mut out = format!(
        "In the last {days} {} waited {} for disks.\nReading ahead could spare {} of that.\n",
        match starts {
            1 => "one cold start".to_owned(),
            starts => format!("{starts} cold starts"),
        },
        sum(|program| program.waited_ns),
        sum(|program| program.spared_ns)
    );
    let shown = if all { usize::MAX } else { SHOWN };
    let mut table = Table::new(&["program", ">starts", ">waited", ">could be spared"]);
    for program in estimate.programs.iter().take(shown) {
        table.row([
            printable(&program.key),
            program.starts.to_string(),
            duration(program.waited_ns),
            match program.is_floor_known {
                true => duration(program.spared_ns),
                false => "not known".into(),
            },
        ]);
    }
    out += &section("Most could be spared of", &table);
    let more = estimate.programs.len().saturating_sub(shown);
    if more > 0 {
        out += &format!("{more} more: headstart estimate --all\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(programs: usize) -> Estimate {
        let program = |i| ProgramEstimate {
            key: format!("/usr/bin/program-{i}"),
            starts: 3,
            waited_ns: 4_000_000_000,
            spared_ns: 3_000_000_000,
            is_floor_known: i != 1,
        };
        Estimate {
            days: 7,
            programs: (0..programs).map(program).collect(),
        }
    }

    #[test]
    fn it_says_what_was_waited_for_and_what_could_be_spared_of_the_first_five() {
        let text = text(&estimate(7), false);
        assert!(
            text.starts_with("In the last 7 days 21 cold starts waited 28.0 s for disks.\nReading ahead could spare 21.0 s of that.\n"),
            "{text}"
        );
        assert!(
            text.contains("program-4") && !text.contains("program-5"),
            "{text}"
        );
        assert!(text.contains("not known") && text.contains("2 more:"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(super::text(&estimate(7), true).contains("program-6"));
    }

    #[test]
    fn where_nothing_was_recorded_it_says_who_records() {
        let text = text(&estimate(0), false);
        assert!(text.contains("observe = true"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

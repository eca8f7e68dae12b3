//! Days of use (`lab/days`): how long all starts of a day took together, beside the same day without a tool.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use super::rows::Rows;
use headstart_bench::statistics::median;

/// The columns of `lab/days`'s starts.csv.
pub const COLUMNS: &[&str] = &["setup", "day", "program", "ms"];
/// The setup without a tool.
const WITHOUT: &str = "none";

/// One row for each tool.
pub fn table(rows: &Rows) -> Result<String> {
    let mut days: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
    for row in rows.iter() {
        let of_setup = days.entry(row.text("setup")).or_default();
        *of_setup.entry(row.number("day")? as u32).or_default() += row.number("ms")? / 1000.0;
    }
    let without = days.remove(WITHOUT).context("no day without a tool")?;
    let middle = |days: &BTreeMap<u32, f64>| median(&days.values().copied().collect::<Vec<_>>());
    let mut text = format!(
        "{}\n\n| tool | days | all starts of a day, s (median) | the same without, s | slowest day over the same without | days slower than without |\n|---|---|---|---|---|---|\n",
        rows.about
    );
    for (setup, own) in &days {
        let ratio = |(day, time): (&u32, &f64)| Some((*day, time / without.get(day)?));
        let ratios: Vec<(u32, f64)> = own.iter().filter_map(ratio).collect();
        let slowest = ratios
            .iter()
            .copied()
            .reduce(|a, b| if b.1 > a.1 { b } else { a });
        let (day, most) =
            slowest.with_context(|| format!("{setup} has no day that there is without a tool"))?;
        let slower = ratios.iter().filter(|(_, ratio)| *ratio > 1.0).count();
        let _ = writeln!(
            text,
            "| {setup} | {} | {:.1} | {:.1} | {most:.2} (day {day}) | {slower} |",
            ratios.len(),
            middle(own),
            middle(&without),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_held_against_the_same_day() {
        let text = "# b\nsetup,day,program,ms,kib\nnone,1,a,1000,5\nnone,1,b,1000,5\nnone,2,a,4000,5\nnone,3,a,1000,5\n\
            daemon,1,a,2100,5\ndaemon,2,a,1000,5\ndaemon,3,a,500,5\n";
        let text = table(&Rows::parse(text, COLUMNS).unwrap()).unwrap();
        assert_eq!(
            text.lines().last().unwrap(),
            "| daemon | 3 | 1.0 | 2.0 | 1.05 (day 1) | 1 |"
        );
        let nothing = Rows::parse("# b\nsetup,day,program,ms\ndaemon,1,a,5\n", COLUMNS).unwrap();
        assert!(table(&nothing).is_err());
    }
}

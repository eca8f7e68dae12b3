//! Prints what controls cost over three months of seven programs, and how late a change is found by which
//! replays cost time, as tables for docs/decisions/0042-controls.md and docs/never-slower.md:
//! `cargo run --release -p headstart-learn --example controls [HISTORIES]`. Always the same, for the chance
//! has a seed.

#[path = "../tests/engine/mod.rs"]
mod engine;

use engine::days::{Bill, changes, found_after, months, programs};

/// Months that are simulated.
const MONTHS: usize = 3;

fn main() {
    let histories: u64 = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(1000);
    println!("{histories} histories for each row.\n");
    println!("| cold starts a day | gain | noise | controls cost, of what is saved: month 1 | 2 | 3 |");
    println!("|---|---|---|---|---|---|");
    let mut all = [Bill::default(); MONTHS];
    for program in programs() {
        let mut bills = [Bill::default(); MONTHS];
        for seed in 0..histories {
            let of_one = months(&program, MONTHS, seed);
            bills
                .iter_mut()
                .zip(&of_one)
                .for_each(|(sum, bill)| sum.add(bill));
        }
        all.iter_mut().zip(&bills).for_each(|(sum, bill)| sum.add(bill));
        print_row(
            &format!(
                "{}: {} | {:.0} % | {:.0} %",
                program.name,
                program.starts_a_day,
                100.0 * program.gain,
                100.0 * program.deviation
            ),
            &bills,
        );
    }
    print_row("all | | ", &all);
    println!("\n| what changes | bypassed after starts (10, 50, 90 % of histories) |");
    println!("|---|---|");
    for change in changes() {
        let found = found_after(&change, histories);
        let percentile = |share: f64| found[((found.len() - 1) as f64 * share) as usize];
        let [early, median, late] = [0.1, 0.5, 0.9].map(percentile);
        println!("| {} | {early}, {median}, {late} |", change.name);
    }
}

fn print_row(name: &str, bills: &[Bill]) {
    let share = |bill: &Bill| match bill.saved_s > 0.0 {
        true => format!("{:.1} %", 100.0 * bill.share()),
        false => format!(
            "nothing saved; {} controls in {} starts",
            bill.controls, bill.starts
        ),
    };
    let shares: Vec<String> = bills.iter().map(share).collect();
    println!("| {name} | {} |", shares.join(" | "));
}

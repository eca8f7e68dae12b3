//! Prints how often the verdict that replays are slower is wrong, as tables for
//! docs/decisions/0008-the-verdict.md and, of what was planted alone, for docs/never-slower.md:
//! `cargo run --release -p headstart-learn --example error_rates [HISTORIES [planted]]`. Always the same, for
//! the chance has a seed.

#[path = "../tests/engine/mod.rs"]
mod engine;

use engine::{Case, hard, harmful, harmless, planted, simulate};

fn main() {
    let mut words = std::env::args().skip(1);
    let histories = words
        .next()
        .map_or(4000, |word| word.parse().expect("HISTORIES is a number"));
    println!(
        "{histories} histories of {} cold starts for each row.\n",
        engine::STARTS
    );
    if words.next().as_deref() != Some("planted") {
        print("no start slower", harmless(), histories);
        print("slower by", harmful(), histories);
        print("slower by (not always decided)", hard(), histories);
    }
    print("starts vary by 20 %; replays are", planted(), histories);
}

fn print(what: &str, cases: Vec<(&str, Case)>, histories: u64) {
    println!("| {what} | ever bypassed | after starts (10, 50, 90 % of these histories) | starts bypassed |");
    println!("|---|---|---|---|");
    for (name, case) in cases {
        let rates = simulate(&case, histories);
        let after = rates.after.map_or("–".into(), |[early, median, late]| {
            format!("{early}, {median}, {late}")
        });
        println!(
            "| {name} | {:.1} % | {after} | {:.1} % |",
            100.0 * rates.bypassed_ever,
            100.0 * rates.bypassed
        );
    }
    println!();
}

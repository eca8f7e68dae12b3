//! Prints how often the verdict that replays are slower is wrong, as a table for
//! docs/decisions/0008-the-verdict.md:
//! `cargo run --release -p headstart-learn --example error_rates [HISTORIES]`. Always the same, for the
//! chance has a seed.

#[path = "../tests/engine/mod.rs"]
mod engine;

use engine::{hard, harmful, harmless, hidden, simulate};

fn main() {
    let histories = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(4000);
    println!(
        "{histories} histories of {} starts for each row.\n",
        engine::STARTS
    );
    for (what, cases) in [
        ("no start slower", harmless()),
        ("slower by", harmful()),
        ("slower by (not always decided)", hard()),
        ("slower by (hardly ever decided)", hidden()),
    ] {
        println!("| {what} | ever bypassed | after starts (10, 50, 90 % of histories) | starts bypassed |");
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
}

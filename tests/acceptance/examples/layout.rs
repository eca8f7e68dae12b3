//! Whether `headstart layout apply` harms a file, at length; `tests/acceptance/layout.rs` does less of the
//! same.
//!
//! `cargo run --release -p headstart-acceptance --example layout -- WHAT [COUNT [SEED]]`
//!
//! `matrix`: every kind of file system, three moves each; SEED is the number of the case that it begins with.
//! `swaps`: a second move undoes the first; movers that share a donor, COUNT seconds. `beside`: while others
//! use the files, COUNT seconds. `kills`: killed COUNT times. `cuts`: the power of its disk cut COUNT times,
//! with a write cache that loses half of what was not flushed.

use anyhow::{Context, Result, bail, ensure};
use headstart_acceptance::layout::{cuts, files_in_use, kills, matrix, swaps};
use std::time::Duration;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut number = |otherwise: u64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    match what.as_str() {
        "matrix" => all_cases(number(0)? as usize, number(1)? as usize),
        "beside" => {
            files_in_use::run(Duration::from_secs(number(60)?), number(1)?).map(|told| println!("{told}"))
        }
        "swaps" => {
            let long = Duration::from_secs(number(60)?);
            println!("{}", swaps::twice(1)?);
            swaps::one_donor(long, number(1)?).map(|told| println!("{told}"))
        }
        "kills" => kills::run(number(300)? as usize, number(1)?).map(|told| println!("{told}")),
        "cuts" => cuts::run(number(100)? as usize, number(1)?).map(|told| println!("{told}")),
        _ => bail!("matrix, swaps, beside, kills or cuts, not {what:?}"),
    }
}

/// All cases from the `first` on (1), or so many of them; a failure does not end it.
fn all_cases(most: usize, first: usize) -> Result<()> {
    let mut failed = 0;
    let cells = matrix::all();
    let most = if most == 0 { cells.len() } else { most };
    ensure!(
        first <= cells.len(),
        "there are {} cases, and no case {first}",
        cells.len()
    );
    println!(
        "|   no |   size | full | shape          | use        | files | moved          | jumps before and after |"
    );
    for (number, cell) in (1..).zip(&cells).skip(first.max(1) - 1).take(most) {
        let (case, order) = cell;
        let name = format!(
            "| {number:>4} | {:>6} | {:>3}% | {:<14} | {:<10} |",
            case.size >> 20,
            case.full,
            case.shape.name,
            format!("{order:?}")
        );
        match matrix::try_one(cell).with_context(|| name.clone()) {
            Ok(done) => {
                let moved: Vec<String> = done.moves.iter().map(|said| said.files.to_string()).collect();
                let jumps: Vec<String> = done
                    .moves
                    .iter()
                    .map(|said| format!("{}>{}", said.jumps.0, said.jumps.1))
                    .collect();
                let why = done.moves.last().map_or("", |said| &said.why);
                println!(
                    "{name} {:>5} | {:<14} | {} {why}",
                    done.files,
                    moved.join(" "),
                    jumps.join(" ")
                );
            }
            Err(error) => {
                failed += 1;
                println!("{name} FAILED: {error:#}");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} cases failed");
    }
    Ok(())
}

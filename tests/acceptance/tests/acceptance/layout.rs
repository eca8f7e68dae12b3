//! `headstart layout apply` harms no file: short forms of what `--example layout` does at length.

use anyhow::{Context, Result};
use headstart_acceptance::layout::{cuts, files_in_use, kills, matrix, swaps};
use headstart_acceptance::long;
use std::time::Duration;

#[test]
fn files_of_every_kind_of_file_system_are_what_they_were_after_three_moves() -> Result<()> {
    for cell in matrix::some() {
        let done = matrix::try_one(&cell).with_context(|| format!("{cell:?}"))?;
        println!(
            "{} {}% {:?}: {:?}",
            cell.0.shape.name, cell.0.full, cell.1, done.moves[0]
        );
    }
    Ok(())
}

#[test]
fn a_second_move_undoes_the_first_and_movers_may_share_a_donor() -> Result<()> {
    println!("{}", swaps::twice(1)?);
    let long = Duration::from_secs(if long() { 60 } else { 5 });
    println!("{}", swaps::one_donor(long, 1)?);
    Ok(())
}

#[test]
fn nobody_who_uses_files_while_they_move_sees_a_wrong_byte_or_an_error() -> Result<()> {
    let long = Duration::from_secs(if long() { 60 } else { 8 });
    println!("{}", files_in_use::run(long, 1)?);
    Ok(())
}

#[test]
fn a_kill_at_any_moment_leaves_every_file_whole_and_nothing_behind() -> Result<()> {
    println!("{}", kills::run(if long() { 100 } else { 12 }, 1)?);
    Ok(())
}

#[test]
fn a_power_cut_at_any_moment_leaves_every_file_whole_and_nothing_behind() -> Result<()> {
    println!("{}", cuts::run(if long() { 30 } else { 6 }, 1)?);
    Ok(())
}

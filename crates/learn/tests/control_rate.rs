//! What control runs cost over months of use, and how late a change is found by which replays cost time.

mod engine;

use engine::days::{Bill, changes, found_after, months, programs};

/// Enough for what they cost to be known to a twentieth; a few seconds in an unoptimised build.
const MACHINES: u64 = 20;

/// The most that control runs may cost, of what replays save.
const MOST: f64 = 0.02;

/// The bills of all programs together, month by month.
fn bills(count: usize) -> Vec<Bill> {
    let mut bills = vec![Bill::default(); count];
    for program in programs() {
        for seed in 0..MACHINES {
            let of_one = months(&program, count, seed);
            bills
                .iter_mut()
                .zip(&of_one)
                .for_each(|(sum, bill)| sum.add(bill));
        }
    }
    bills
}

#[test]
fn control_runs_cost_a_fiftieth_of_what_is_saved() {
    let bills = bills(2);
    assert!(bills[1].share() <= MOST, "{bills:?}");
    // In the first month nothing is known at its beginning.
    assert!(bills[0].share() <= 1.25 * MOST, "{bills:?}");
}

#[test]
fn no_program_is_without_control_runs() {
    for program in programs() {
        let bills = months(&program, 6, 1);
        let controls: usize = bills.iter().map(|bill| bill.controls).sum();
        assert!(controls >= 2, "{}: {bills:?}", program.name);
    }
}

#[test]
fn a_gain_that_becomes_a_loss_is_found() {
    // The medians: with one control run in ten all along, half of the histories are as late or later.
    for (change, latest) in changes().iter().zip([40, 80, 25, 80, 150]) {
        let found = found_after(change, 2 * MACHINES + 1);
        let median = found[found.len() / 2];
        assert!(median <= latest, "{}: {found:?}", change.name);
    }
}

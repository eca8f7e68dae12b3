//! How long replays of a key take of late, beside what the cost model says.

use headstart_model::Outcome;

/// So many of the last replays count: one that another reader disturbed is outvoted.
const LAST: usize = 3;

/// The median of what the last replays took, as a multiple of what the cost model says; 1 where none has
/// told.
pub fn pace_of_late(outcomes: &[Outcome]) -> f64 {
    let told = outcomes.iter().rev().filter_map(|outcome| outcome.pace);
    let mut last: Vec<f64> = told
        .map(f64::from)
        .filter(|pace| pace.is_finite())
        .take(LAST)
        .collect();
    last.sort_unstable_by(f64::total_cmp);
    last.get(last.len() / 2).copied().unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::outcome::Mode;
    use headstart_model::testing;

    #[test]
    fn one_disturbed_replay_of_three_is_outvoted() {
        let median_pace = |paces: &[Option<f32>]| -> f64 {
            let outcome = |pace: &Option<f32>| Outcome {
                pace: *pace,
                ..Outcome::new(testing::key("k"), Mode::Replay)
            };
            pace_of_late(&paces.iter().map(outcome).collect::<Vec<_>>())
        };
        assert_eq!(median_pace(&[]), 1.0);
        assert_eq!(median_pace(&[None, Some(1.5), None]), 1.5);
        assert_eq!(median_pace(&[Some(1.5), Some(9.0), None, Some(1.25)]), 1.5);
        assert_eq!(median_pace(&[Some(1.0), Some(1.0), Some(2.0), Some(2.0)]), 2.0);
        assert_eq!(median_pace(&[Some(f32::NAN)]), 1.0);
    }
}

//! How much memory starts of a key need for themselves.

use headstart_model::Outcome;

/// So many of the last starts that told count: whatever else needed memory beside one of them is forgotten
/// then.
const LAST: usize = 5;

/// The most that one of the last starts needed, bytes; `None` where none has told.
pub fn memory_needed_of_late(outcomes: &[Outcome]) -> Option<u64> {
    let told = outcomes.iter().rev().filter_map(|outcome| outcome.memory_needed);
    told.take(LAST).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::outcome::Mode;
    use headstart_model::testing;

    #[test]
    fn the_most_of_the_last_starts_counts() {
        let needed = |told: &[Option<u64>]| {
            let outcome = |needed: &Option<u64>| Outcome {
                memory_needed: *needed,
                ..Outcome::new(testing::key("k"), Mode::Replay)
            };
            memory_needed_of_late(&told.iter().map(outcome).collect::<Vec<_>>())
        };
        assert_eq!((needed(&[]), needed(&[None])), (None, None));
        assert_eq!(needed(&[Some(3), Some(9), None, Some(5)]), Some(9));
        let late = [Some(9), Some(1), Some(2), None, Some(3), Some(2), Some(1)];
        assert_eq!(needed(&late), Some(3));
    }
}

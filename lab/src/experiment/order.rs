//! The order of runs: whole rounds, shuffled inside by a fixed seed, so that no setup has a place of its own
//! and the same file always gives the same order.

use headstart_bench::statistics::Random;

/// One run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the case.
    pub case: usize,
    /// From 0.
    pub round: usize,
    /// Index of the setup.
    pub setup: usize,
}

/// All runs of an experiment: case after case, round after round, the setups of a round in an order of its
/// own.
pub fn schedule(cases: usize, rounds: usize, setups: usize, seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let mut steps = Vec::with_capacity(cases * rounds * setups);
    for case in 0..cases {
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..setups).collect();
            // Fisher and Yates.
            for last in (1..setups).rev() {
                order.swap(last, random.below(last + 1));
            }
            steps.extend(order.into_iter().map(|setup| Step { case, round, setup }));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_shuffled_and_always_the_same() {
        let order = |seed| {
            schedule(1, 4, 4, seed)
                .iter()
                .map(|s| s.setup)
                .collect::<Vec<_>>()
        };
        // A change of these numbers would let an old experiment be resumed in another order.
        assert_eq!(order(1), [2, 0, 3, 1, 1, 2, 0, 3, 3, 2, 0, 1, 1, 3, 0, 2]);
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn every_round_has_every_setup_and_every_setup_every_place() {
        let (rounds, setups) = (400, 4);
        let steps = schedule(2, rounds, setups, 7);
        assert_eq!(steps.len(), 2 * rounds * setups);
        let mut first = [0; 4];
        for (number, round) in steps.chunks(setups).enumerate() {
            let mut seen: Vec<usize> = round.iter().map(|s| s.setup).collect();
            first[seen[0]] += 1;
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
            assert!(
                round
                    .iter()
                    .all(|s| (s.case, s.round) == (number / rounds, number % rounds))
            );
        }
        // 200 each; five standard deviations (12.2) to either side.
        assert!(first.iter().all(|n| (139..=261).contains(n)), "{first:?}");
    }
}

//! A case's figures against the goals of its experiment.

use serde::Serialize;

use super::{CaseReport, Estimate};
use crate::experiment::{Begun, Figure, Goal};

/// Rounds that tell whether a build is slower than another: the interval of fewer holds the true value much
/// less often than it claims (of two rounds, in one of two experiments).
const TELLING: usize = 5;

/// A figure beside its goal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Setup name.
    pub setup: String,
    /// Which figure.
    pub figure: Figure,
    /// The setup whose gain is the measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The largest value that meets the goal.
    pub at_most: f64,
    /// The value; absent where too few runs count.
    pub value: Option<Estimate>,
}

impl Judged {
    /// Whether the goal is met; `None` where nothing tells. Against an earlier build a goal is missed only if
    /// the whole interval lies beyond, because chance makes half of all equal pairs slower: a single pair
    /// tells nothing.
    pub fn met(&self) -> Option<bool> {
        let value = self.value?;
        let least = match self.figure {
            Figure::OverEarlier => value.interval?[0],
            _ => value.value,
        };
        Some(least <= self.at_most)
    }

    /// For people.
    pub fn shown(&self) -> String {
        let (name, goal) = (self.figure.name(), self.figure.shown(self.at_most));
        let verdict = match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "too few runs to tell",
        };
        let value = self
            .value
            .map_or("–".to_owned(), |value| self.figure.shown(value.value));
        format!("{}: {name} {value}, goal at most {goal}: {verdict}", self.setup)
    }
}

/// Every goal that is one of this case's.
pub fn judge(experiment: &Begun, case: &CaseReport) -> Vec<Judged> {
    let own =
        (experiment.goals.iter()).filter(|goal| goal.case.as_ref().is_none_or(|name| *name == case.name));
    own.map(|goal| Judged {
        setup: goal.setup.clone(),
        figure: goal.figure,
        of: goal.of.clone(),
        at_most: goal.at_most,
        value: figure(goal, &experiment.base, case),
    })
    .collect()
}

fn figure(goal: &Goal, base: &str, case: &CaseReport) -> Option<Estimate> {
    let setup = case.setup(&goal.setup).filter(|setup| setup.n > 0)?;
    match goal.figure {
        Figure::AboveBest => setup.above_best,
        Figure::AboveFloor => setup.above_floor,
        Figure::OverEarlier => setup.over_earlier.filter(|_| setup.n >= TELLING),
        Figure::Ratio => setup.median_ratio,
        Figure::GainLost => case.gain_lost(&goal.setup, base, goal.of.as_deref()?),
        Figure::ExtraMs => setup.median_difference.map(|seconds| seconds.times(1000.0)),
        Figure::MoreRead => setup.more_read.map(|value| Estimate {
            value,
            interval: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(figure: Figure, at_most: f64, value: f64, interval: Option<[f64; 2]>) -> Option<bool> {
        let value = Some(Estimate { value, interval });
        let setup = "headstart".to_owned();
        Judged {
            setup,
            figure,
            of: None,
            at_most,
            value,
        }
        .met()
    }

    #[test]
    fn a_goal_is_met_up_to_its_bound() {
        assert_eq!(judged(Figure::AboveBest, 1.1, 1.1, None), Some(true));
        assert_eq!(
            judged(Figure::AboveBest, 1.1, 1.11, Some([1.0, 1.2])),
            Some(false)
        );
    }

    #[test]
    fn a_build_is_slower_than_another_only_where_chance_does_not_explain_it() {
        assert_eq!(
            judged(Figure::OverEarlier, 1.0, 1.02, Some([0.99, 1.05])),
            Some(true)
        );
        assert_eq!(
            judged(Figure::OverEarlier, 1.0, 1.02, Some([1.01, 1.03])),
            Some(false)
        );
        assert_eq!(judged(Figure::OverEarlier, 1.0, 1.02, None), None);
    }
}

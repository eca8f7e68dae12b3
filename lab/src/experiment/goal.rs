//! What an experiment's figures are held against: kept with its results, so that a page can show both.

use serde::{Deserialize, Serialize};

/// A bound on one figure of one setup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// The setup.
    pub setup: String,
    /// The case; every case when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What of it is bounded.
    pub figure: Figure,
    /// The setup whose gain is the measure, for [`Figure::GainLost`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The largest value that meets the goal, in the figure's own unit.
    pub at_most: f64,
}

/// What can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The time over max(warm, T_io), of medians: a ratio.
    #[serde(rename = "L")]
    AboveBest,
    /// The time over the floor, of medians: a ratio.
    #[serde(rename = "L*")]
    AboveFloor,
    /// Bytes read beyond the base's, as a share of the base's, of medians.
    MoreRead,
    /// The time over that of the earlier build in the same round. It is missed where the whole interval lies
    /// above the goal.
    OverEarlier,
    /// Median of the time less the base's in the same round, in milliseconds.
    ExtraMs,
    /// Median of the time over the base's in the same round: a ratio.
    Ratio,
    /// The share of another setup's gain over the base that this one does not reach, of medians.
    GainLost,
}

impl Figure {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Figure::AboveBest => "L",
            Figure::AboveFloor => "L*",
            Figure::MoreRead => "read beyond a cold start",
            Figure::OverEarlier => "time over the earlier build",
            Figure::ExtraMs => "time over bare",
            Figure::Ratio => "ratio to bare",
            Figure::GainLost => "gain lost",
        }
    }

    /// A value of it with its unit.
    pub fn shown(self, value: f64) -> String {
        match self {
            Figure::AboveBest | Figure::AboveFloor | Figure::OverEarlier => format!("{value:.2}"),
            Figure::Ratio => format!("{value:.3}"),
            Figure::MoreRead | Figure::GainLost => format!("{:.0} %", value * 100.0),
            Figure::ExtraMs => format!("{value:.1} ms"),
        }
    }
}

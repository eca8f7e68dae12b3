//! The start of a program, before anything is forked: what is known of it, and so what is done for it.

use crate::decide::{Decision, Known, Warmth, decide};
use crate::{Purpose, bypass};
use headstart_model::plan::PlanFile;
use headstart_store::{KeyDir, Loaded};
use std::hash::{BuildHasher, Hasher, RandomState};

/// What is done for a start, and with what.
pub struct Prepared {
    /// What is done.
    pub decision: Decision,
    /// The plan, if there is one that reads anything.
    pub plan: Option<PlanFile>,
    /// What there is to tell of it, for the log.
    pub lines: Vec<String>,
}

/// Looks what is known of the start and decides.
pub fn prepare(purpose: &Purpose) -> Prepared {
    let mut lines = Vec::new();
    let Purpose::Loop {
        store,
        key,
        control_every,
    } = purpose
    else {
        return Prepared {
            decision: Decision::Record,
            plan: None,
            lines,
        };
    };
    let kept = store.key(key);
    let bypass = kept.bypass();
    let known = Known {
        bypass: bypass.as_ref(),
        kernel: &bypass::kernel(),
        turns: kept.turns(),
        control_every: *control_every,
        has_plan: true,
        warmth: None,
        draw: RandomState::new().build_hasher().finish(),
    };
    // A start that is bypassed reads no plan.
    if known.bypass.is_some() {
        let decision = decide(&known);
        if matches!(decision, Decision::Bypass(_)) {
            return Prepared {
                decision,
                plan: None,
                lines,
            };
        }
    }
    let plan = plan_of(&kept, &mut |line| lines.push(line));
    let decision = decide(&Known {
        has_plan: plan.is_some(),
        warmth: plan.as_ref().and_then(warmth),
        ..known
    });
    Prepared {
        decision,
        plan,
        lines,
    }
}

/// What of the plan is in memory; `None` where that cannot be told.
fn warmth(_plan: &PlanFile) -> Option<Warmth> {
    None
}

/// The plan, if it reads anything. That memory has no room for what it would read is told.
pub fn plan_of(kept: &KeyDir, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    let file = match kept.plan() {
        Loaded::Some(file) => file,
        Loaded::None => return None,
        Loaded::Damaged(line) => {
            tell(line);
            return None;
        }
    };
    let plan = file.plan().ok()?;
    let (cut, requests) = (plan.cut(), plan.requests().count());
    if cut == 0 && requests > 0 {
        tell(
            "when it was planned memory had no room for anything that is known: nothing is read ahead".into(),
        );
    }
    (cut > 0).then_some(file)
}

//! A new plan for a key whose files lie elsewhere than when it was planned last.

use crate::machine::{self, Costs, Measure};
use crate::{now_unix_ns, replan};
use anyhow::Result;
use headstart_learn::pace_of_late;
use headstart_model::sort::Sort;
use headstart_plan::{PlanOptions, plan, recorded_metadata};
use headstart_store::{Change, KeyDir, Store};

/// Plans anew what is known of a key. Its memory budget stays; nothing happens where nothing was learned yet.
pub fn plan_again(store: &Store, kept: &KeyDir, tell: &mut dyn FnMut(String)) -> Result<()> {
    let lock = kept.lock()?;
    if let Some(why) = lock.dir().newer() {
        tell(why);
        return Ok(());
    }
    // One that counts in other pages says nothing here, and the next start begins it anew.
    let profile = lock.dir().profile().or_tell(&mut *tell);
    let Some(profile) = profile.filter(|profile| profile.page_size as usize == rustix::param::page_size())
    else {
        return Ok(());
    };
    let mut metadata = Vec::new();
    for path in lock.dir().traces() {
        if let Some(trace) = lock.dir().trace(&path).or_tell(&mut *tell) {
            metadata.extend(recorded_metadata(&trace));
        }
    }
    metadata.sort_small_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    metadata.dedup();
    let mut state = lock.dir().state();
    let before = state.plan().or_tell(&mut *tell);
    let budget = before.as_ref().and_then(|file| Some(file.plan().ok()?.budget()));
    let costs = Costs {
        store,
        class: None,
        measure: Measure::Nothing,
    };
    let facts = machine::snapshot(&profile, &costs, tell)?;
    let options = PlanOptions {
        budget,
        pace: pace_of_late(&lock.dir().outcomes(&mut *tell)),
        bridges: !state.turns.bridges_nothing,
        ..PlanOptions::new(now_unix_ns())
    };
    let mut notes = crate::Notes::default();
    let planned = plan(&profile, &facts, &metadata, &options);
    let planned = replan::replacing(before.as_ref(), &profile, &planned, &mut notes)?;
    lock.change(&Change {
        plan: planned.as_ref(),
        ..Change::default()
    })?;
    for line in notes.take().lines() {
        tell(line.to_owned());
    }
    Ok(())
}

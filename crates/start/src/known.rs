//! What is known of a key before its start: its plan, whether it is enabled or bypassed, and whose turn it is.

use crate::bypass;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::PlanFile;
use headstart_store::{Bypass, KeyDir, Loaded, Store, Turns};

/// Whether a start is to wait for a replay of this plan on a device that was measured as one head. What the plan itself says of a device
/// may be a guess.
pub fn waits_on_one_head(store: &Store, plan: &PlanFile) -> bool {
    let Ok(plan) = plan.plan() else { return false };
    let is_one_head = |uuid: &[u8; 16]| {
        let stored = store.device_cost(uuid);
        stored.is_some_and(|stored| stored.cost.class == DeviceClass::Disk)
    };
    let mut devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices.any(|device| device.hold > 0 && is_one_head(&device.uuid))
}

/// What is asked of a key before its start: of one file where that says all (`headstart_store::Start`), else of the files of its directory.
pub struct First {
    kept: KeyDir,
    plan: Option<PlanFile>,
    /// Whether anything is done for its starts.
    pub enabled: bool,
    /// Its bypass, if its starts are bypassed.
    pub bypass: Option<Bypass>,
    /// Where it stands between control runs.
    pub turns: Turns,
}

impl First {
    /// Reads that; the plan only where it comes with the rest.
    pub fn of(kept: &KeyDir) -> First {
        let kept = kept.clone();
        match kept.start() {
            Some(start) => First {
                plan: Some(start.plan),
                enabled: true,
                bypass: None,
                turns: start.turns,
                kept,
            },
            None => First {
                plan: None,
                enabled: kept.is_served(),
                bypass: kept.bypass(),
                turns: kept.turns(),
                kept,
            },
        }
    }

    /// This machine, where that decides: a bypass holds for one.
    pub fn machine(&self) -> String {
        self.bypass
            .as_ref()
            .map_or_else(String::new, |_| bypass::machine())
    }

    /// The plan, as [`plan_of`].
    pub fn plan(&mut self, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
        match self.plan.take() {
            Some(file) => that_reads(file, tell),
            None => plan_of(&self.kept, tell),
        }
    }
}

/// The plan, if it reads anything. That memory has no room for what it would read is told.
pub fn plan_of(kept: &KeyDir, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    match kept.plan() {
        Loaded::Some(file) => that_reads(file, tell),
        Loaded::None => None,
        Loaded::Damaged(line) => {
            tell(line);
            None
        }
    }
}

fn that_reads(file: PlanFile, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    let plan = file.plan().ok()?;
    let (cut, requests) = (plan.cut(), plan.requests().count());
    if cut == 0 && requests > 0 {
        tell(
            "when it was planned memory had no room for anything that is known: nothing is read ahead".into(),
        );
    }
    (cut > 0).then_some(file)
}

//! What the state of a key says of its next start: whether its plan reads anything, on which machine its
//! bypass holds, and who is to wait.

use crate::bypass;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{PlanDevice, PlanFile};
use headstart_store::{KeyDir, State, Store};
use headstart_system::device::DeviceFacts;
use headstart_system::mounts::MountTable;

/// Whether a start is to wait for a replay of this plan on a device that was measured as one head, or is an
/// optical drive. What the plan itself says of a device may be a guess. The file systems of media have no
/// UUID by which a measurement would be found.
pub fn waits_on_one_head(store: &Store, plan: &PlanFile) -> bool {
    let Ok(plan) = plan.plan() else { return false };
    let is_measured = |device: &PlanDevice| {
        let stored = store.device_cost(&device.uuid);
        stored.is_some_and(|stored| stored.cost.class == DeviceClass::Disk)
    };
    let devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    let held: Vec<PlanDevice> = devices.filter(|device| device.hold > 0).collect();
    held.iter().any(is_measured) || held.iter().any(is_on_optical_drive)
}

fn is_on_optical_drive(device: &PlanDevice) -> bool {
    let Ok(mounts) = MountTable::read() else {
        return false;
    };
    let mount = mounts.lookup(device.mount_point.as_bytes());
    let mount = mount.filter(|mount| mount.mount_point == device.mount_point);
    mount
        .and_then(DeviceFacts::of_mount)
        .is_some_and(|facts| facts.is_optical())
}

/// This machine, where that decides: a bypass holds for one.
pub fn machine_of(state: &State) -> String {
    state
        .bypass
        .as_ref()
        .map_or_else(String::new, |_| bypass::machine())
}

/// The plan that a start with this state may be read ahead by: the key's own, or where it has none the one
/// that others' starts have taught. As [`plan_of`].
pub fn plan_of_state(state: &mut State, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    let own = state.plan().or_tell(&mut *tell);
    let plan = own.or_else(|| state.imported_plan().or_tell(&mut *tell))?;
    that_reads(plan, tell)
}

/// The plan of a key, if it reads anything. That memory has no room for what it would read is told.
pub fn plan_of(kept: &KeyDir, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    plan_of_state(&mut kept.state(), tell)
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

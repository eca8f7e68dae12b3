//! When the next control run is due, once a start is over.

use crate::bypass;
use headstart_learn::verdict::History;
use headstart_learn::verdict::controls::{Rate, phase};
use headstart_model::Key;
use headstart_model::machine::Cost;
use headstart_model::outcome::Mode;
use headstart_model::plan::Plan;
use headstart_store::Turns;
use headstart_system::mounts::MountTable;

/// A device whose measured cost is this many times another one's is another device.
const OTHER_DEVICE: f64 = 2.0;

/// The turns after a start of a key that has one control run in `first` at first. `before` were the turns and
/// the plan before it, `turns` and `plan` those after it.
pub(super) fn next_control(
    before: (Turns, Option<&Plan<'_>>),
    after: (Turns, Option<&Plan<'_>>),
    mode: Mode,
    history: &History,
    key: &Key,
    first: u32,
) -> Turns {
    let ((known, before_plan), (turns, plan)) = (before, after);
    // Without a plan no device is known.
    let machine = plan.map_or(known.machine, |plan| bypass::machine_hash(plan));
    let is_other = known.machine != 0 && machine != known.machine;
    let costs_more = before_plan
        .zip(plan)
        .is_some_and(|(before, plan)| costs_differ(before, plan));
    let rate = Rate {
        every: known.control_every,
        replays_since_control: turns.replays_since_control,
    };
    let rate = rate.after(history, mode == Mode::Control, first, phase(key));
    let rate = match is_other || costs_more {
        true => rate.machine_changed(first, phase(key)),
        false => rate,
    };
    Turns {
        control_every: rate.every,
        replays_since_control: rate.replays_since_control,
        machine,
        ..turns
    }
}

/// Whether a device of both plans costs far more or less than it did.
fn costs_differ(before: &Plan<'_>, after: &Plan<'_>) -> bool {
    let devices = |plan: &Plan<'_>| -> Vec<([u8; 16], Cost)> {
        let devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
        devices.map(|device| (device.uuid, device.cost)).collect()
    };
    let (before, after) = (devices(before), devices(after));
    let times = |a: f64, b: f64| a.max(b) >= OTHER_DEVICE * a.min(b);
    let differ = |(a, b): (&Cost, &Cost)| times(a.bandwidth, b.bandwidth) || times(a.latency, b.latency);
    let same = |uuid: &[u8; 16]| before.iter().find(|(other, _)| other == uuid);
    after
        .iter()
        .filter_map(|(uuid, cost)| Some((&same(uuid)?.1, cost)))
        .any(differ)
}

/// Whether a plan reads remote file systems; also where nobody can tell.
pub(super) fn reads_remote_files(plan: &Plan<'_>) -> bool {
    let Ok(mounts) = MountTable::read() else {
        return true;
    };
    let devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices
        .map(|device| mounts.lookup(device.mount_point.as_bytes()).cloned())
        .any(|mount| mount.is_none_or(|mount| mount.is_remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_learn::verdict::start::Start;
    use headstart_model::machine::DeviceClass;
    use headstart_model::plan::PlanFile;
    use headstart_model::testing;

    fn plan_on(class: DeviceClass, latency: f64) -> PlanFile {
        let cost = Cost {
            class,
            bandwidth: 1e8,
            latency,
            depth: 1,
        };
        testing::plan_file(&testing::draft(cost, vec![testing::planned("/f")], Vec::new()))
    }

    /// Twenty cold starts of 10 s, with a replay 2 s, two of them control runs.
    fn history() -> History {
        let mut history = History::default();
        for number in 0..20 {
            let (mode, seconds) = match number {
                0 => (Mode::Record, 11),
                9 | 19 => (Mode::Control, 10),
                _ => (Mode::Replay, 2),
            };
            history.add(Start {
                started_unix_ns: 0,
                mode,
                resident: 0.0,
                elapsed_ns: seconds * 1_000_000_000 + number,
                updated: false,
            });
        }
        history
    }

    #[test]
    fn a_control_run_is_seldom_once_a_gain_is_shown_and_due_again_on_another_machine() {
        let (disk, flash) = (
            plan_on(DeviceClass::Disk, 1e-2),
            plan_on(DeviceClass::Flash, 1e-2),
        );
        let faster = plan_on(DeviceClass::Disk, 1e-3);
        let [disk, flash, faster] = [&disk, &flash, &faster].map(|file| file.plan().unwrap());
        let next = |known: Turns, before, after, mode| {
            let turns = Turns {
                replays_since_control: 30,
                ..known
            };
            let (key, history) = (Key::new("k").unwrap(), history());
            next_control((known, before), (turns, after), mode, &history, &key, 10)
        };
        let known = next(Turns::default(), None, Some(&disk), Mode::Control);
        assert!((80..96).contains(&known.control_every), "{known:?}");
        assert_ne!(known.machine, 0);
        let same = next(known, Some(&disk), Some(&disk), Mode::Replay);
        assert_eq!(
            (same.control_every, same.replays_since_control),
            (known.control_every, 30)
        );
        let without_plan = next(known, Some(&disk), None, Mode::Replay);
        assert_eq!(without_plan.machine, known.machine);
        for other in [&flash, &faster] {
            let other = next(known, Some(&disk), Some(other), Mode::Replay);
            assert!((7..=10).contains(&other.control_every), "{other:?}");
            assert_eq!(
                other.replays_since_control, 0,
                "all programs are not controls at once"
            );
        }
    }
}

//! The beginning of a boot: what is done for it is decided, the boot-failure guard taken, and the replay
//! begun.

use crate::boot::{Boot, StateId};
use crate::boot_report::WayIn;
use crate::cmdline::Wish;
use crate::decision;
use crate::medium;
use crate::persistence::Persistence;
use crate::replays::Replays;
use crate::root_after_check::make_root_writable;
use crate::this_boot::RUN;
use crate::wait::how_long::{LONGEST_ELSEWHERE, LONGEST_ON_ONE_HEAD};
use headstart_model::plan::PlanFile;
use headstart_start::decide::Decision;
use headstart_start::{Start, plan_of_state, waits_on_one_head};
use headstart_store::{Guard, State, Store, StoreError, Turns};
use headstart_system::device::DeviceFacts;
use rustix::fs::{major, minor};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an initramfs may take from having moved `/proc` to the root until process 1 is headstart-init:
/// meanwhile it removes its own files from memory, 100 MB and more.
const FROM_INITRAMFS_TO_INIT: Duration = Duration::from_secs(2);

impl Boot<'_> {
    /// Decides what is done for this boot, and takes the boot-failure guard for it: before anything is read
    /// ahead or recorded.
    pub fn decide(&mut self, mut state: State) {
        if self.lasts != Persistence::Longer {
            // Nothing counts turns there: if a control were due, each boot would be one.
            state.turns = Turns::default();
        }
        let plan = plan_of_state(&mut state, &mut |line| self.notes.add(line));
        let decision = decision::decide_boot(&state, self.wish, &self.config, plan.is_some());
        let why_not = match &plan {
            None => Some("nothing was known of what a boot needs".into()),
            Some(_) if self.wish == Wish::Record => {
                Some("the kernel command line says headstart=record".into())
            }
            Some(_) if decision != Decision::Replay => Some(state.bypass.map_or_else(
                || "it was a control run, to compare with".into(),
                |bypass| {
                    format!(
                        "boots are bypassed, and this one was to re-evaluate that: {}",
                        bypass.why
                    )
                },
            )),
            Some(_) => None,
        };
        // Asked only where the boot is from such a medium: a boot waits.
        let may_be_in_memory = self.wish != Wish::On && self.lasts != Persistence::Longer;
        let is_in_memory = may_be_in_memory && plan.as_ref().is_some_and(medium::is_in_memory);
        self.start = Start::with_plan(decision, plan, state.turns.exact_due);
        self.last.mode = Some(self.start.mode());
        self.last.not_replayed = why_not.or_else(|| self.last.not_replayed.take());
        if is_in_memory {
            self.not_replayed(IN_MEMORY.into());
        }
        let within = match self.last.from {
            WayIn::Initramfs => FROM_INITRAMFS_TO_INIT,
            WayIn::Init | WayIn::Generator | WayIn::Unit => Duration::ZERO,
        };
        match make_root_writable(|| self.barrier.process_1_waits(within)) {
            Ok(made) => self.last.made_writable = made,
            Err(error) => self.notes.add(format!("{error:#}")),
        }
        self.take_guard();
    }

    /// Begins anew where something else holds the state by now, such as a separate /var that was mounted:
    /// unless a replay has begun. Once, for at a shutdown that is gone again.
    pub fn begin_where_mounted(&mut self) {
        let state = StateId::read(self.store);
        if self.state != state && !self.was_mounted {
            (self.state, self.was_mounted) = (state, true);
            self.lasts = Persistence::for_store(self.store);
            self.armed = None;
            if self.guard.take().is_some() {
                // It decides what is done from the beginning until then, and is never armed again.
                self.notes.add(format!(
                    "what lies beneath the mount point of {} is a state of headstart's, too: remove it",
                    self.store.root().display()
                ));
            }
            if self.start.replay().is_none() {
                self.decide(self.kept.state());
                self.replay();
            }
        }
    }

    /// Takes the boot-failure guard. On a file system that is not writable yet, as a root may be before
    /// systemd remounts it, that waits, and with it the replay: one without a guard could keep the machine
    /// from booting for ever. A recorder could, too, but does not wait: what comes before would be missed in
    /// each boot.
    pub fn take_guard(&mut self) {
        let left_alone = match self.kept.disarm(|| device_of(self.store.root())) {
            Ok(taken @ (None | Some(Guard::Taken))) => {
                self.guard = taken;
                return;
            }
            Ok(Some(Guard::Failed)) => LAST_FAILED.into(),
            Ok(Some(Guard::GivenUp)) => GIVEN_UP.into(),
            // Nothing ever changes there: the boot after which it was frozen was read ahead, or recorded, and
            // came to its end.
            Err(error) if read_only(&error) && self.lasts == Persistence::Frozen && self.kept.is_armed() => {
                self.guard = Some(Guard::Taken);
                return;
            }
            Err(error) if read_only(&error) => {
                if self.start.is_to_begin() {
                    self.barrier.close_later(Path::new(RUN));
                    self.last.not_replayed = Some(cannot_take(&error));
                }
                return;
            }
            Err(error) => cannot_take(&error),
        };
        // Also where nobody knows.
        self.guard = Some(Guard::Failed);
        self.not_replayed(left_alone);
    }

    /// Begins the replay, if there is one and the guard is taken.
    pub fn replay(&mut self) {
        if self.guard != Some(Guard::Taken) {
            return;
        }
        match self.start.begin_by(|plan| Replays::start(plan, self.origin)) {
            Ok(true) => {
                self.barrier.replay_begins(Instant::now());
                self.last.mode = Some(self.start.mode());
                self.last.not_replayed = None;
            }
            Ok(false) => {}
            Err(error) => self.not_replayed(format!("the replay could not begin: {error:#}")),
        }
    }
}

/// Why a boot is neither read ahead nor recorded.
const LAST_FAILED: &str =
    "the last boot that was read ahead or recorded did not come to its end, so this one was left alone";

/// Why they are for good.
pub const GIVEN_UP: &str = "three boots that were read ahead or recorded did not come to their end, one after another: they are left alone until \
                            `headstart boot forget`";

/// Why a boot from a medium that was copied into memory (`toram` of live-boot) is not read ahead: it waits
/// for no device, and pages that it does not need yet would take memory beside the copy.
const IN_MEMORY: &str = "what it reads lies in memory, as a live medium that was copied there";

/// The block device of a file system, open to be read; `None` where it has none of its own (btrfs, overlays),
/// or none that may be opened.
fn device_of(path: &Path) -> Option<File> {
    let device = std::fs::metadata(path).ok()?.dev();
    let facts = DeviceFacts::read(major(device), minor(device))?;
    File::open(facts.node?).ok()
}

fn cannot_take(error: &StoreError) -> String {
    format!("the boot-failure guard cannot be taken: {error}")
}

/// The longest that anybody waits for a replay of this plan: three minutes only where a device for which the
/// plan has the boot wait was measured as one head.
pub fn longest_wait(store: &Store, plan: &PlanFile) -> Duration {
    match waits_on_one_head(store, plan) {
        true => LONGEST_ON_ONE_HEAD,
        false => LONGEST_ELSEWHERE,
    }
}

/// Whether the state's file system may become writable yet.
fn read_only(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { error, .. } if error.kind() == ErrorKind::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::machine::{Cost, DeviceClass};
    use headstart_model::plan::{PlanDevice, PlanDraft};
    use headstart_store::DeviceCost;
    use headstart_system::testing::{LoopFs, Spec, can_mount};

    #[test]
    fn the_device_of_a_state_is_found_where_it_has_one() {
        if !can_mount() {
            return;
        }
        let fs = LoopFs::create(&Spec::new("ext4"), |_| Ok(())).unwrap();
        let device = device_of(&fs.mount_point()).unwrap();
        let on = std::fs::metadata(fs.mount_point()).unwrap().dev();
        assert_eq!(device.metadata().unwrap().rdev(), on);
        device.sync_all().unwrap();
        for none in ["/proc", "/nowhere"] {
            assert!(device_of(Path::new(none)).is_none(), "{none}");
        }
    }

    #[test]
    fn only_where_a_device_was_measured_as_one_head_a_boot_waits_for_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let cost = |class| Cost {
            class,
            bandwidth: 1e8,
            latency: 1e-2,
            depth: 1,
        };
        let plan = |uuid: u8, hold| {
            let device = PlanDevice {
                uuid: [uuid; 16],
                hold,
                ..PlanDevice::new("/".into(), cost(DeviceClass::Disk))
            };
            let draft = PlanDraft {
                devices: vec![device],
                ..PlanDraft::new(Key::new("boot").unwrap(), 4096)
            };
            PlanFile::new(draft.to_bytes().unwrap())
        };
        for (uuid, class) in [(1, DeviceClass::Disk), (2, DeviceClass::Flash)] {
            let stored = DeviceCost {
                decompression: None,
                cost: cost(class),
                first_touch: None,
                device: String::new(),
                measured_unix_ns: 1,
            };
            store.save_device_cost(&[uuid; 16], &stored).unwrap();
        }
        for (uuid, hold, expected) in [
            (1, 5, LONGEST_ON_ONE_HEAD),
            (1, 0, LONGEST_ELSEWHERE),
            (2, 5, LONGEST_ELSEWHERE),
            (3, 5, LONGEST_ELSEWHERE),
        ] {
            assert_eq!(longest_wait(&store, &plan(uuid, hold)), expected, "{uuid} {hold}");
        }
    }
}

//! What a replay on remote file systems has told: which of them are dead, and whether there was anything to
//! read.

use headstart_model::outcome::ReplayReport;
use headstart_model::plan::PlanFile;
use headstart_start::Notes;
use headstart_system::mounts::MountTable;
use std::time::Duration;

/// Of more dead file systems than this nothing is said.
const MOST: usize = 64;

/// A look-up that was answered within this time may have been answered from memory: no server is asked for a
/// name in less, but on the fastest networks, where little is gained.
const FROM_MEMORY: Duration = Duration::from_millis(1);

/// Mount points of remote file systems that have not answered the last replay there: each is said once, until
/// it answers again.
#[derive(Default)]
pub(super) struct DeadMounts(Vec<String>);

impl DeadMounts {
    /// Notes which of a plan's remote file systems have answered its replay, and says which have not. False
    /// where the plan reads of none.
    pub(super) fn note(&mut self, file: &PlanFile, report: &ReplayReport, notes: &mut Notes) -> bool {
        let (Ok(plan), Ok(mounts)) = (file.plan(), MountTable::read()) else {
            return false;
        };
        let points = (0..plan.device_count()).filter_map(|index| plan.device(index));
        let points: Vec<String> = points
            .filter(|device| {
                let mount = mounts.lookup(device.mount_point.as_bytes());
                mount.is_some_and(|mount| mount.is_remote)
            })
            .map(|device| device.mount_point.to_string())
            .collect();
        self.0
            .retain(|dead| !points.contains(dead) || report.unanswered.contains(dead));
        for dead in &report.unanswered {
            if !self.0.contains(dead) && self.0.len() < MOST {
                notes.add(format!(
                    "{dead} did not answer what was read ahead there: it was given up"
                ));
                self.0.push(dead.clone());
            }
        }
        !points.is_empty()
    }
}

/// Whether a replay has read nothing: all that it asked for was in memory, or nobody has answered.
pub(super) fn has_read_nothing(report: &ReplayReport) -> bool {
    report.issued.iter().all(|one| {
        let resident: u64 = one.resident.iter().map(|range| range.pages()).sum();
        let took = Duration::from_nanos(one.done_ns.saturating_sub(one.issued_ns));
        one.arrived_pages <= resident && (one.pages.pages() > 0 || took < FROM_MEMORY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::PageRange;
    use headstart_model::outcome::Issued;
    use headstart_model::testing::{NETWORK, draft, plan_file, planned};

    #[test]
    fn a_dead_mount_is_said_once_until_it_answers() {
        // Whatever is mounted at the root is not remote: what has not answered is told all the same.
        let plan = plan_file(&draft(NETWORK, vec![planned("/a")], Vec::new()));
        let (mut dead, mut notes) = (DeadMounts::default(), Notes::default());
        let hung = ReplayReport {
            unanswered: vec!["/net".into()],
            ..ReplayReport::default()
        };
        assert!(!dead.note(&plan, &hung, &mut notes));
        dead.note(&plan, &hung, &mut notes);
        assert!(notes.all().len() == 1 && notes.all()[0].contains("/net"));
    }

    #[test]
    fn a_replay_that_found_all_in_memory_has_read_nothing() {
        let of = |pages: u64, resident: u64, took_ns: u64| ReplayReport {
            issued: vec![Issued {
                request: 0,
                pages: PageRange::new(0, pages),
                issued_ns: 5,
                done_ns: 5 + took_ns,
                resident: vec![PageRange::new(0, resident)],
                arrived_pages: pages,
            }],
            ..ReplayReport::default()
        };
        assert!(has_read_nothing(&ReplayReport::default()));
        assert!(has_read_nothing(&of(4, 4, 50_000_000)));
        assert!(!has_read_nothing(&of(4, 3, 1000)));
        assert!(has_read_nothing(&of(0, 0, 10_000)));
        assert!(!has_read_nothing(&of(0, 0, 2_000_000)), "a server was asked");
    }
}

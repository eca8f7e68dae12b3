//! The replay of a boot's plan, in parts: a file system's part begins when it is mounted, those mounted
//! already at once and together. Encrypted and late disks come when they come; nobody waits for them, and
//! they for nobody.

use anyhow::Result;
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::{PlanDevice, PlanFile};
use headstart_model::sort::Sort;
use headstart_replay::{Options, Replay, ReplayError, Taken};
use headstart_start::Reads;
use headstart_system::mounts::{Followed, MountTable};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A plan's replay.
pub struct Replays {
    plan: Arc<PlanFile>,
    origin: Instant,
    running: Vec<Part>,
    /// What its parts may fill together.
    taken: Arc<Taken>,
    /// Devices of the plan, by index, whose file system was not mounted yet.
    waiting: Vec<usize>,
    /// `None` where that cannot be told: nothing comes then.
    mounts: Option<Followed>,
}

struct Part {
    replay: Replay,
    /// The plan's number of each request of the part; `None` where it is the whole plan.
    requests: Option<Vec<u32>>,
}

impl Replays {
    /// Begins with what is mounted. Times count from `origin`.
    pub fn start(plan: PlanFile, origin: Instant) -> Result<Replays> {
        let plan = Arc::new(plan);
        let checked = plan.plan()?;
        let devices = 0..checked.device_count();
        let followed = Followed::read().ok();
        let mounts = followed.as_ref().map(Followed::table).unwrap_or_default();
        let (now, waiting): (Vec<usize>, Vec<usize>) = devices.partition(|index| {
            checked
                .device(*index)
                .is_some_and(|device| is_mounted(&device, &mounts))
        });
        let mut replays = Replays {
            running: Vec::new(),
            taken: Arc::default(),
            origin,
            waiting,
            plan: Arc::clone(&plan),
            mounts: followed,
        };
        if replays.waiting.is_empty() {
            replays.running.push(Part {
                replay: replays.start_replay(plan)?,
                requests: None,
            });
        } else {
            replays.start_part(&now)?;
        }
        Ok(replays)
    }

    fn start_replay(&self, plan: impl Into<Arc<PlanFile>>) -> Result<Replay, ReplayError> {
        let options = Options {
            stop_at_reclaim: true,
            gives_way: false,
            // The plan leaves what boots need.
            share: 1.0,
            taken: Arc::clone(&self.taken),
            ..Options::new(self.origin)
        };
        Replay::start(plan, options)
    }

    /// Starts the part of some devices.
    fn start_part(&mut self, devices: &[usize]) -> Result<()> {
        let (part, requests) = plan_part(&self.plan, devices)?;
        if !requests.is_empty() {
            self.running.push(Part {
                replay: self.start_replay(part)?,
                requests: Some(requests),
            });
        }
        Ok(())
    }

    /// Starts the replay of file systems that were mounted since the last call.
    pub fn start_mounted(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // A boot may mount thousands, one after the other.
        let Some(mounts) = &mut self.mounts else {
            return Ok(());
        };
        if !mounts.refresh_in_time() {
            return Ok(());
        }
        let mounts = mounts.table();
        let plan = self.plan.plan()?;
        let come = |index: &usize| {
            plan.device(*index)
                .is_some_and(|device| is_mounted(&device, &mounts))
        };
        let (now, waiting): (Vec<usize>, Vec<usize>) = self.waiting.iter().partition(|index| come(index));
        self.waiting = waiting;
        if now.is_empty() {
            Ok(())
        } else {
            self.start_part(&now)
        }
    }

    /// In what time to look again, where what is mounted now may not have been read yet.
    pub fn looks_in(&self) -> Option<Duration> {
        let mounts = self.mounts.as_ref().filter(|_| !self.waiting.is_empty())?;
        mounts.waits_for()
    }

    /// Whether some device's replay would be caught up with by what starts now: on one head every read amid
    /// the replay costs more than waiting (decision 2).
    pub fn is_waited_for(&self) -> bool {
        self.running.iter().any(|part| part.replay.barrier_up())
    }

    /// How many parts of requests have been read. One that failed is none: it says nothing of whether the
    /// device still works.
    pub fn arrived(&self) -> u64 {
        self.running.iter().map(|part| part.replay.arrived()).sum()
    }

    /// Whether anything is under way.
    pub fn go_on(&self) -> bool {
        !self.running.iter().all(|part| part.replay.is_finished())
    }

    /// Whether nothing is under way or waited for.
    pub fn are_over(&self) -> bool {
        self.waiting.is_empty() && !self.go_on()
    }
}

impl Reads for Replays {
    fn plan(&self) -> Arc<PlanFile> {
        Arc::clone(&self.plan)
    }

    fn stop(&self) {
        for part in &self.running {
            if !part.replay.is_finished() {
                part.replay.stop();
            }
        }
    }

    /// What all parts did together.
    fn finish(self) -> ReplayReport {
        let mut report = ReplayReport::default();
        let never =
            |file: &PlanFile| plan_part(file, &self.waiting).map_or(0, |(_, requests)| requests.len());
        report.skipped.missing = never(&self.plan) as u64;
        for Part { replay, requests } in self.running {
            add(&mut report, replay.finish(), requests.as_deref());
        }
        report
            .issued
            .sort_small_by_key(|one| (one.issued_ns, one.request));
        report
    }
}

fn is_mounted(device: &PlanDevice, mounts: &MountTable) -> bool {
    let covers = mounts.lookup(device.mount_point.as_bytes());
    covers.is_some_and(|mount| mount.mount_point == device.mount_point && mounts.is_local(mount))
}

/// The plan of some of a plan's devices, and its requests' numbers in the whole.
fn plan_part(file: &PlanFile, devices: &[usize]) -> Result<(PlanFile, Vec<u32>)> {
    let plan = file.plan()?;
    let mut draft = plan.to_draft()?;
    let mut numbers = Vec::new();
    let (mut requests, mut cut) = (Vec::new(), 0);
    for (number, request) in plan.requests().enumerate() {
        if devices.contains(&usize::from(request.device)) {
            cut += u32::from(number < plan.cut());
            numbers.push(number as u32);
            requests.push(request);
        }
    }
    draft.named.retain(|number| numbers.binary_search(number).is_ok());
    for number in &mut draft.named {
        *number = numbers.partition_point(|kept| kept < number) as u32;
    }
    draft.requests = requests;
    draft.cut = cut;
    draft
        .fills
        .retain(|fill| devices.contains(&usize::from(fill.device)));
    for touch in draft.fills.iter_mut().flat_map(|fill| &mut fill.touches) {
        touch.request = numbers.partition_point(|number| *number < touch.request) as u32;
    }
    Ok((PlanFile::new(draft.to_bytes()?), numbers))
}

/// Adds what a part did; `requests` are the plan's numbers of its requests, where it has others.
fn add(all: &mut ReplayReport, mut part: ReplayReport, requests: Option<&[u32]>) {
    if let Some(numbers) = requests {
        part.issued.retain_mut(|one| {
            let number = numbers.get(one.request as usize);
            one.request = number.copied().unwrap_or(one.request);
            number.is_some()
        });
    }
    all.add(part);
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::machine::{Cost, DeviceClass, FirstTouch};
    use headstart_model::plan::{Fill, PlanDraft, PlanFileEntry, Request, RequestKind, Touch};

    /// A file on each of two devices, the first of which is where `directory` is.
    fn plan(mounts: [&str; 2], files: [&std::path::Path; 2]) -> PlanFile {
        let device = |mount: &str| headstart_model::plan::PlanDevice {
            mount_point: mount.into(),
            uuid: [0; 16],
            cost: Cost {
                class: DeviceClass::Flash,
                bandwidth: 1e9,
                latency: 1e-4,
                depth: 4,
            },
            request_limit: 128 << 10,
            hold: 0,
            compression: None,
        };
        let file = |(device, path): (usize, &std::path::Path)| {
            use std::os::unix::fs::MetadataExt;
            let facts = std::fs::metadata(path).unwrap();
            PlanFileEntry {
                path: path.into(),
                device: device as u16,
                inode: facts.ino(),
                generation: 0,
                size: facts.size(),
                mtime_ns: facts.mtime() * 1_000_000_000 + facts.mtime_nsec(),
            }
        };
        let request = |device: u16| Request {
            kind: RequestKind::Data,
            stage: 0,
            device,
            file: device.into(),
            offset: 0,
            length: 4096,
            bridged: 0,
            deadline_us: 0,
            from_end: false,
            follows: false,
        };
        let draft = PlanDraft {
            key: Key::new("boot").unwrap(),
            page_size: rustix::param::page_size() as u32,
            created_unix_ns: 0,
            budget: 1 << 20,
            cut: 2,
            stages: vec!["start".into()],
            devices: mounts.map(device).to_vec(),
            files: files.into_iter().enumerate().map(file).collect(),
            requests: vec![request(1), request(0)],
            named: Vec::new(),
            fills: vec![Fill {
                device: 0,
                first_touch: FirstTouch {
                    granule: 512 << 10,
                    latency: 1.0,
                    depth: 1,
                },
                touches: vec![Touch {
                    offset: 0,
                    request: 1,
                }],
            }],
        };
        PlanFile::new(draft.to_bytes().unwrap())
    }

    #[test]
    fn a_part_of_a_plan_fetches_for_its_own_requests() {
        let path = std::path::Path::new("/etc/passwd");
        let whole = plan(["/", "/not/mounted"], [path, path]);
        let fetched = |devices: &[usize]| {
            let (file, numbers) = plan_part(&whole, devices).unwrap();
            let fills: Vec<Fill> = file.plan().unwrap().fills().collect();
            (fills.into_iter().flat_map(|fill| fill.touches).collect(), numbers)
        };
        assert_eq!(
            fetched(&[0]),
            (
                vec![Touch {
                    offset: 0,
                    request: 0
                }],
                vec![1]
            )
        );
        assert_eq!(
            fetched(&[0, 1]),
            (
                vec![Touch {
                    offset: 0,
                    request: 1
                }],
                vec![0, 1]
            )
        );
        assert_eq!(fetched(&[1]), (Vec::new(), vec![0]));
    }

    /// Bytes that this thread has read.
    fn read_so_far() -> u64 {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    }

    #[test]
    fn a_boot_that_mounts_hundreds_one_after_the_other_is_not_slowed_by_their_table() {
        use headstart_system::testing::can_mount;
        use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
        if !can_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("all")).unwrap();
        mount("t", at("all"), "tmpfs", MountFlags::empty(), None).unwrap();
        let file = at("all").join("file");
        std::fs::write(&file, "x").unwrap();
        let mut replays = Replays::start(
            plan(["/not/mounted", "/nor/that"], [file.as_path(), &file]),
            Instant::now(),
        )
        .unwrap();
        let (before, mut read) = (read_so_far(), 0);
        for nth in 0..500 {
            let point = at("all").join(nth.to_string());
            std::fs::create_dir(&point).unwrap();
            mount_bind("/", &point).unwrap();
            replays.start_mounted().unwrap();
            read = read_so_far() - before;
        }
        let table = std::fs::read("/proc/thread-self/mountinfo").unwrap().len() as u64;
        unmount(at("all"), UnmountFlags::DETACH).unwrap();
        // It has grown all the time: half of it 500 times, if it was read at each.
        assert!(read < 60 * table, "{read} bytes, of a table of {table}");
    }

    #[test]
    fn what_is_not_mounted_is_waited_for_and_counted() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let table = MountTable::read().unwrap();
        let here = table.lookup(path.as_os_str().as_encoded_bytes()).unwrap();
        let here = here.mount_point.to_string();
        let mut replays =
            Replays::start(plan([&here, "/not/mounted"], [&path, &path]), Instant::now()).unwrap();
        replays.start_mounted().unwrap();
        assert!(!replays.are_over(), "one is waited for");
        while replays.go_on() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let report = replays.finish();
        assert_eq!(report.skipped.missing, 1, "{report:?}");
        assert_eq!(
            report.issued.iter().map(|one| one.request).collect::<Vec<_>>(),
            [1],
            "the number that it has in the whole plan"
        );
    }
}

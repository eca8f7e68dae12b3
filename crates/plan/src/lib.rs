//! A profile says what, a plan says where: [`plan`] turns a profile and the facts of this machine into requests in
//! issue order. One cost model decides which holes are bridged ([`headstart_model::machine::Cost::bridge`]), whether
//! requests go by address or by deadline, and where the memory budget cuts. Pure: the facts come from a snapshot.

mod data;
mod deadlines;
mod metadata;
mod order;
mod schedule;

use headstart_model::limits;
use headstart_model::machine::{FileFacts, Found, Machine};
use headstart_model::plan::{MAX_STAGES, PlanDevice, PlanDraft, PlanFileEntry};
use headstart_model::profile::{Entry, Need};
use headstart_model::{FilePath, PageRange, Profile, Trace};
use std::collections::HashMap;

/// How to plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Memory the replay may fill, bytes; `None` for the share [`MEMORY_SHARE`] of what is available.
    pub budget: Option<u64>,
    /// Now, nanoseconds since 1970.
    pub now_unix_ns: u64,
}

/// The share of the available memory that a replay may fill if nothing else is said. Half: what a start reads it also
/// works on, and its own memory must come from the rest.
pub const MEMORY_SHARE: f64 = 0.5;

/// A path whose facts a plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Absolute path.
    pub path: FilePath,
    /// What is needed of it.
    pub need: Need,
    /// Whether pages of it are needed too.
    pub data: bool,
}

/// A metadata page that the file system had to read in some earlier start: by mount point, because device numbers
/// change.
pub type RecordedMetadata = (FilePath, PageRange);

/// The paths whose facts a plan of this profile needs: those with enough votes, and their other names in overlays.
pub fn wanted(profile: &Profile) -> Vec<Want> {
    let threshold = profile.policy.threshold();
    let mut wanted = Vec::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        let data = entry.ranges.iter().any(|r| r.weight >= threshold);
        for path in [Some(&entry.path), entry.overlay.as_ref()].into_iter().flatten() {
            wanted.push(Want {
                path: path.clone(),
                need: entry.need,
                data,
            });
        }
    }
    wanted
}

/// The metadata pages that a trace saw read, by the mount points of its file systems.
pub fn recorded_metadata(trace: &Trace) -> Vec<RecordedMetadata> {
    let mounts: HashMap<(u32, u32), &FilePath> = trace
        .filesystems
        .iter()
        .filter(|f| f.local)
        .map(|f| ((f.major, f.minor), &f.mount_point))
        .collect();
    trace
        .metadata
        .iter()
        .filter_map(|miss| {
            let mount = mounts.get(&(miss.major, miss.minor))?;
            Some((
                (*mount).clone(),
                PageRange::new(miss.start, u64::from(miss.pages)),
            ))
        })
        .collect()
}

/// The plan of a profile on this machine.
pub fn plan(
    profile: &Profile,
    machine: &Machine,
    recorded: &[RecordedMetadata],
    options: &PlanOptions,
) -> PlanDraft {
    let budget = options
        .budget
        .unwrap_or((machine.memory_available as f64 * MEMORY_SHARE) as u64);
    let mut files = Files::default();
    let mut requests = metadata::requests(profile, machine, recorded);
    requests.extend(metadata::lookups(profile, machine, &mut files));
    requests.extend(data::requests(profile, machine, &mut files));
    // What a plan cannot take is left to the start.
    requests.retain(|r| usize::from(r.request.device) < limits::DEVICES);
    requests.truncate(limits::REQUESTS);
    let start = profile.cpu_ns.map(|cpu_ns| schedule::Start {
        cpu_ns,
        timeline_ns: profile.timeline_ns,
    });
    let order = order::order(&mut requests, machine, budget, start);
    PlanDraft {
        key: profile.key.clone(),
        page_size: machine.page_size,
        created_unix_ns: options.now_unix_ns,
        budget,
        cut: order.cut,
        stages: profile.stages.iter().take(MAX_STAGES).cloned().collect(),
        devices: machine
            .devices
            .iter()
            .zip(order.holds)
            .take(limits::DEVICES)
            .map(|(d, hold)| PlanDevice {
                mount_point: d.mount_point.clone(),
                uuid: d.uuid,
                cost: d.cost,
                request_limit: d.request_limit,
                hold,
            })
            .collect(),
        files: files.entries,
        requests: requests.into_iter().map(|r| r.request).collect(),
    }
}

/// A request with what its order depends on.
struct Ordered {
    request: headstart_model::plan::Request,
    /// Where it reads on the device, bytes; `None` if that is unknown.
    physical: Option<u64>,
    /// Number of directories above it: a path is looked up after them.
    level: usize,
    /// When it is issued.
    turn: Turn,
    /// The pass of its device that it is read in, where the sweep is done in several.
    pass: u16,
}

/// What is issued in which part of a replay, one part after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Metadata without which no data can be asked for.
    Metadata,
    /// Look-ups that read what no metadata block answers.
    LookUps,
    /// Data, and on one head the metadata that only the start needs, as the head passes it.
    Sweep,
    /// Look-ups that find their metadata in memory by then.
    After,
}

/// What the texts of a plan besides its files' paths may take at most: names of stages and mount points.
const OTHER_TEXT: usize = limits::STAGES * limits::STAGE_NAME + limits::DEVICES * limits::PATH;

/// The files of a plan, each once.
#[derive(Default)]
struct Files {
    entries: Vec<PlanFileEntry>,
    index: HashMap<FilePath, u32>,
    bytes: usize,
}

impl Files {
    /// The index of a file; `None` if a plan cannot take one more.
    fn index(&mut self, facts: &FileFacts, device: u32) -> Option<u32> {
        if let Some(index) = self.index.get(&facts.path) {
            return Some(*index);
        }
        let bytes = self.bytes + facts.path.as_bytes().len();
        let fits = self.entries.len() < limits::PLAN_FILES && bytes <= limits::TEXT - OTHER_TEXT;
        if !fits || (device as usize) >= limits::DEVICES {
            return None;
        }
        self.bytes = bytes;
        let index = self.entries.len() as u32;
        self.entries.push(PlanFileEntry {
            path: facts.path.clone(),
            device: device as u16,
            inode: facts.inode,
            generation: facts.generation,
            size: facts.size,
            mtime_ns: facts.mtime_ns,
        });
        self.index.insert(facts.path.clone(), index);
        Some(index)
    }
}

/// The facts of an entry: at its path, or through an overlay where the path leads nowhere.
fn facts_of<'a>(by_path: &HashMap<&FilePath, &'a FileFacts>, entry: &Entry) -> Option<&'a FileFacts> {
    let is_there = |f: &&&FileFacts| !matches!(f.found, Found::Missing | Found::NotLocal);
    let direct = by_path.get(&entry.path);
    let through = entry.overlay.as_ref().and_then(|o| by_path.get(o));
    direct
        .filter(is_there)
        .or(through.filter(is_there))
        .or(direct)
        .copied()
}

fn by_path(machine: &Machine) -> HashMap<&FilePath, &FileFacts> {
    machine.files.iter().map(|f| (&f.path, f)).collect()
}

fn level(path: &FilePath) -> usize {
    path.as_bytes().iter().filter(|b| **b == b'/').count()
}

/// The stage of a request, by that of the profile: the last a plan can have stands for those beyond it.
fn plan_stage(stage: u16) -> u8 {
    u8::try_from(stage).unwrap_or(u8::MAX)
}

fn deadline_us(first_use_ns: u64) -> u32 {
    u32::try_from(first_use_ns / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod tests;

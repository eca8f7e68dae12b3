//! A profile says what, a plan says where: [`plan`] turns a profile and the facts of this machine into
//! requests in issue order. One cost model decides which holes are bridged
//! ([`headstart_model::machine::Cost::bridge`]), whether requests go by address or by deadline, and where the
//! memory budget cuts. Pure: the facts come from a snapshot.

mod cached;
mod compressed;
mod data;
mod deadlines;
pub mod floor;
mod lazily_filled;
mod metadata;
mod named_requests;
mod neighbours;
mod order;
mod pace;
mod parts;
mod request;
mod schedule;
mod users;

use headstart_model::limits;
use headstart_model::machine::Machine;
use headstart_model::plan::{MAX_STAGES, PlanDevice, PlanDraft};
use headstart_model::profile::{Need, Policy};
use headstart_model::{FilePath, PageRange, Profile, Trace, room};
use request::Files;
use std::collections::HashMap;

pub use floor::sweep_seconds;
pub use pace::pace;
pub use request::RecordedMetadata;

/// How to plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Memory the replay may fill, bytes; `None` for as much as [`room::for_program`] says.
    pub budget: Option<u64>,
    /// Memory that starts of the key need for themselves, bytes; `None` where that is not known.
    pub needed: Option<u64>,
    /// Now, nanoseconds since 1970.
    pub now_unix_ns: u64,
    /// How many times as long as by the cost model the key's replays took of late ([`pace`]); 1 where none
    /// has told.
    pub pace: f64,
    /// Whether holes in files are bridged where that is cheaper than to jump over them.
    pub bridges: bool,
}

impl PlanOptions {
    /// Those of a key of which no more is known.
    pub fn new(now_unix_ns: u64) -> PlanOptions {
        PlanOptions {
            budget: None,
            needed: None,
            now_unix_ns,
            pace: 1.0,
            bridges: true,
        }
    }
}

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

/// The paths whose facts a plan of this profile needs: those with enough votes, and their other names in
/// overlays; as many as a plan may have files.
pub fn wanted(profile: &Profile) -> Vec<Want> {
    let threshold = profile.policy.threshold();
    let mut wanted = Vec::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        if wanted.len() >= limits::PLAN_FILES {
            break;
        }
        let data = entry.all_ranges().any(|r| r.weight >= threshold);
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
        .unwrap_or_else(|| room::for_program(machine.memory_available, options.needed));
    let bounded = match users::serves_everybody(profile) {
        true => users::bounded(profile, machine, budget),
        false => None,
    };
    let (profile, machine) = bounded
        .as_ref()
        .map_or((profile, machine), |(profile, machine)| (profile, machine));
    let mut files = Files::default();
    let mut requests = metadata::requests(profile, machine, recorded);
    requests.extend(metadata::lookups(profile, machine, &mut files));
    requests.extend(data::requests(profile, machine, options.bridges, &mut files));
    named_requests::mark(&mut requests, profile, machine, &files);
    metadata::ask_for_some(profile, machine, &mut files);
    // What a plan cannot take is left to the start.
    requests.retain(|r| usize::from(r.request.device) < limits::DEVICES);
    cached::cut(&mut requests, machine);
    // The one in which memory ends becomes two.
    requests.truncate(limits::REQUESTS - 1);
    let start = profile.cpu_ns.map(|cpu_ns| schedule::Start {
        cpu_ns,
        timeline_ns: profile.timeline_ns,
        // At a boot many tasks wait at once, and nobody knows for how much of it the boot did.
        waited_ns: match profile.policy {
            Policy::Boot => 0,
            _ => profile.waited_ns,
        },
        pace: options.pace,
        is_boot: profile.policy == Policy::Boot,
    });
    // Paths again, which ordering has no use for.
    drop(files.index);
    compressed::gather(&mut requests, &files.entries, machine);
    let order = order::order(&mut requests, machine, budget, start);
    let fills = lazily_filled::fills(&requests[..requests.len().min(order.cut as usize)], machine);
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
                request_limit: cached::request_limit(d, machine.page_size.into()),
                hold,
                compression: d.compression,
            })
            .collect(),
        files: files.entries,
        named: (0..)
            .zip(&requests)
            .filter_map(|(index, request)| request.is_named.then_some(index))
            .collect(),
        requests: requests.into_iter().map(|r| r.request).collect(),
        fills,
    }
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod tests;

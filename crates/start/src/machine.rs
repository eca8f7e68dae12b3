//! The facts of this machine for a profile, with what its devices cost: measured once, kept, else guessed.

use crate::remote_files;
use anyhow::{Context, Result};
use headstart_model::machine::{Cost, DeviceClass, FileFacts, FirstTouch, Machine, PathKind};
use headstart_model::profile::{Need, Policy};
use headstart_model::sort::Sort;
use headstart_model::{FilePath, Profile};
use headstart_plan::Want;
use headstart_store::{DeviceCost, Store};
use headstart_system::device::{
    DeviceFacts, ProbeError, ProbeOptions, decompression_rate, default_cost, probe,
};
use headstart_system::mounts::MountTable;
use headstart_system::snapshot::{self, DeviceIdentity, Options, Wanted};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

/// A measurement older than this is made again when the device is idle. A volume of a cloud may be given
/// another speed and keeps its name; a second of reading in three months is nothing.
const COST_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// So old is that of a volume that is filled as it is read, for then it is filled.
const FILLING_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// So far a clock may have been ahead without a measurement's time being a mistake.
const CLOCK_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// Which devices are measured, a second each at most, before their costs are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// None: what is not known is guessed.
    Nothing,
    /// Those whose costs are not known, or were measured long ago.
    Unknown,
    /// All: what is kept may be of another device, or of a busy moment.
    All,
}

/// Where costs come from.
pub struct Costs<'a> {
    /// Where measured costs are kept.
    pub store: &'a Store,
    /// The class that all devices are taken to have, instead of what was measured or guessed.
    pub class: Option<DeviceClass>,
    /// Which are measured first.
    pub measure: Measure,
}

impl<'a> Costs<'a> {
    /// The costs that are known, of devices of this class if one is given. Others are measured.
    pub fn new(store: &'a Store, class: Option<DeviceClass>) -> Costs<'a> {
        let measure = Measure::Unknown;
        Costs {
            store,
            class,
            measure,
        }
    }
}

/// Most paths lead through fewer directories than so many.
const DEEP: usize = 8;

fn wanted(profile: &Profile) -> Vec<Wanted> {
    let need = |want: &Want| match want.need {
        _ if want.data => snapshot::Need::Data,
        Need::List => snapshot::Need::List,
        Need::Missing | Need::Stat | Need::Open => snapshot::Need::Stat,
    };
    let wanted = headstart_plan::wanted(profile);
    // A snapshot has room for so much. Whoever has paths of thousands of directories looked up takes that of
    // no others.
    let is_deep = |want: &&Want| want.path.as_bytes().iter().filter(|byte| **byte == b'/').count() > DEEP;
    let wanted_of = |want: &Want| Wanted {
        path: want.path.clone(),
        need: need(want),
    };
    let mut ordered: Vec<Wanted> = wanted
        .iter()
        .filter(|want| !is_deep(want))
        .map(wanted_of)
        .collect();
    ordered.extend(wanted.iter().filter(is_deep).map(wanted_of));
    ordered
}

/// Takes a snapshot of what the profile names. What cannot be measured or kept is told to `tell`, and then
/// guessed.
pub fn snapshot(profile: &Profile, costs: &Costs<'_>, tell: &mut dyn FnMut(String)) -> Result<Machine> {
    let wanted = wanted(profile);
    let unknown: RefCell<Vec<DeviceIdentity>> = RefCell::default();
    let cost = |identity: &DeviceIdentity, measure: Measure| -> Option<(Cost, Option<FirstTouch>)> {
        let known = stored_of_device(costs.store, identity);
        let due = match (&known, measure) {
            (_, Measure::Nothing) => false,
            (None, _) | (_, Measure::All) => true,
            (Some(known), Measure::Unknown) => is_old(known, crate::now_unix_ns()) && is_idle(identity),
        };
        let stored = known.map(|known| (known.cost, known.first_touch));
        if let Some(class) = costs.class {
            return Some(
                stored
                    .filter(|(cost, _)| cost.class == class)
                    .unwrap_or_else(|| (default_cost(class), None)),
            );
        }
        if due {
            unknown.borrow_mut().push(identity.clone());
        }
        stored
    };
    let take = |cost: &snapshot::Costs<'_>| {
        let options = Options {
            costs: cost,
            // A boot is read ahead before a scanner runs.
            opens_all: profile.policy == Policy::Boot,
            ..Options::default()
        };
        snapshot::snapshot(&wanted, &options).context("cannot look at this machine")
    };
    let mut machine = take(&|identity| cost(identity, costs.measure))?;
    let unknown = unknown.take();
    if measure(&unknown, costs.store, tell) {
        machine = take(&|identity| cost(identity, Measure::Nothing))?;
    }
    let may_measure = costs.measure != Measure::Nothing;
    add_decompression(&mut machine, costs.store, may_measure, tell)?;
    remote_files::add(&mut machine, profile, costs.store);
    Ok(machine)
}

/// Adds how fast this machine decompresses the files of each device, where they are compressed by blocks: as
/// it is kept with the device's cost, else as some of the files show.
fn add_decompression(
    machine: &mut Machine,
    store: &Store,
    may_measure: bool,
    tell: &mut dyn FnMut(String),
) -> Result<()> {
    let mut mounts = None;
    for (index, device) in machine.devices.iter_mut().enumerate() {
        let (Some(compression), Some(mut stored)) =
            (&mut device.compression, store.device_cost(&device.uuid))
        else {
            continue;
        };
        if stored.decompression.is_none() && may_measure {
            let mounts = match &mounts {
                Some(mounts) => mounts,
                None => mounts.insert(MountTable::read().context("cannot read the table of mounts")?),
            };
            let mut files: Vec<&FileFacts> = machine.files.iter().collect();
            files.retain(|facts| facts.found == PathKind::File && facts.device == Some(index as u32));
            files.sort_small_by_key(|facts| Reverse(facts.size));
            let paths = files.into_iter().map(|facts| &facts.path);
            stored.decompression = decompression_rate(mounts, paths, *compression);
            let saved = stored
                .decompression
                .map(|_| store.save_device_cost(&device.uuid, &stored));
            if let Some(Err(error)) = saved {
                tell(format!(
                    "how fast {} is decompressed is not kept: {error}",
                    device.mount_point
                ));
            }
        }
        compression.rate = stored.decompression.unwrap_or(0);
    }
    Ok(())
}

/// What it is known to cost, and what a first touch costs beyond that.
pub fn stored(store: &Store, identity: &DeviceIdentity) -> Option<(Cost, Option<FirstTouch>)> {
    stored_of_device(store, identity).map(|known| (known.cost, known.first_touch))
}

/// What was measured of this very device: a file system that was copied to another has the old one's UUID.
fn stored_of_device(store: &Store, identity: &DeviceIdentity) -> Option<DeviceCost> {
    let stored = store.device_cost(&identity.uuid)?;
    // An older headstart did not say which device it was.
    let same = stored.device.is_empty() || stored.device == device(identity);
    same.then_some(stored)
}

/// Which device it is, as it is kept with its cost.
fn device(identity: &DeviceIdentity) -> String {
    identity
        .facts
        .as_ref()
        .map_or_else(String::new, DeviceFacts::identity)
}

/// Whether a measurement is to be made again at an opportunity.
fn is_old(stored: &DeviceCost, now_unix_ns: u64) -> bool {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let ahead = stored.measured_unix_ns.saturating_sub(now_unix_ns) > nanoseconds(CLOCK_AHEAD);
    let age = now_unix_ns.saturating_sub(stored.measured_unix_ns);
    let old = match stored.first_touch {
        Some(_) => FILLING_AGE,
        None => COST_AGE,
    };
    stored.device.is_empty() || ahead || age > nanoseconds(old)
}

fn is_idle(identity: &DeviceIdentity) -> bool {
    identity.facts.as_ref().is_some_and(DeviceFacts::is_idle)
}

/// Measures devices and keeps what was found; whether there is anything new.
fn measure(unknown: &[DeviceIdentity], store: &Store, tell: &mut dyn FnMut(String)) -> bool {
    let mut seen = HashSet::new();
    let mut new = false;
    for identity in unknown {
        let Some(facts) = &identity.facts else { continue };
        // What has no UUID cannot be recognised again.
        if facts.node.is_none() || identity.uuid == [0; 16] || !seen.insert(identity.uuid) {
            continue;
        }
        // Another seed reads other places: nothing that an earlier probe left in a cache.
        let seed = crate::now_unix_ns();
        // Beside others' reads a disk looks like a volume of high latency. That serves the next plan, and is
        // measured again as soon as nobody reads: it counts as old.
        let measured_unix_ns = if is_idle(identity) { seed } else { 0 };
        match probe(
            facts,
            &ProbeOptions {
                seed,
                ..ProbeOptions::default()
            },
        ) {
            Ok(measured) => {
                let stored = DeviceCost {
                    decompression: None,
                    cost: measured.cost,
                    first_touch: measured.first_touch,
                    device: device(identity),
                    measured_unix_ns,
                };
                match store.save_device_cost(&identity.uuid, &stored) {
                    Ok(()) => new = true,
                    Err(error) => tell(format!(
                        "the cost of {} is not kept: {error}",
                        identity.mount_point
                    )),
                }
            }
            // Snaps of a few megabytes are common.
            Err(ProbeError::Small { .. }) if identity.fstype == "squashfs" => {}
            Err(error) => tell(format!(
                "the device of {} is not measured, taken for {:?} ({}): {error}",
                identity.mount_point, identity.guess.class, identity.guess.reason
            )),
        }
    }
    new
}

/// A device that somebody asks for.
pub struct KnownDevice {
    /// The path that leads to it.
    pub path: FilePath,
    /// The device.
    pub device: headstart_model::machine::Device,
    /// Whether its cost was measured.
    pub measured: bool,
    /// What its cost is guessed from.
    pub reason: String,
}

/// The devices of the root directory and of the state directory, or of what is to hold it; each once.
pub fn of_root_and_state(store: &Store) -> Vec<KnownDevice> {
    let state = store.root().ancestors().find(|path| path.exists());
    let mut devices: Vec<KnownDevice> = Vec::new();
    for path in [Some(FilePath::from("/")), state.map(FilePath::from)]
        .into_iter()
        .flatten()
    {
        let Ok(Some((device, measured, reason))) = device_of(&path, store) else {
            continue;
        };
        if devices
            .iter()
            .all(|known| known.device.mount_point != device.mount_point)
        {
            devices.push(KnownDevice {
                path,
                device,
                measured,
                reason,
            });
        }
    }
    devices
}

/// The device that a path is on, and whether its cost was measured.
fn device_of(
    path: &FilePath,
    store: &Store,
) -> Result<Option<(headstart_model::machine::Device, bool, String)>> {
    let measured = RefCell::new((false, String::new()));
    let cost = |identity: &DeviceIdentity| {
        let stored = stored_of_device(store, identity).map(|stored| (stored.cost, stored.first_touch));
        *measured.borrow_mut() = (stored.is_some(), identity.guess.reason.clone());
        stored
    };
    let device = snapshot::device_at(
        path,
        &Options {
            costs: &cost,
            ..Options::default()
        },
    )
    .with_context(|| format!("cannot look at the device of {path}"))?;
    let (known, reason) = measured.take();
    Ok(device.map(|device| (device, known, reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::device::Guess;

    fn identity(serial: &str) -> DeviceIdentity {
        let facts = DeviceFacts {
            model: "WDC WD10".into(),
            serial: serial.into(),
            size: 1 << 40,
            ..DeviceFacts::default()
        };
        DeviceIdentity {
            guess: facts.guess(),
            facts: Some(facts),
            uuid: [1; 16],
            fstype: "ext4".into(),
            mount_point: "/".into(),
        }
    }

    fn cost(device: String, measured_unix_ns: u64) -> DeviceCost {
        DeviceCost {
            decompression: None,
            cost: default_cost(DeviceClass::Disk),
            first_touch: None,
            device,
            measured_unix_ns,
        }
    }

    #[test]
    fn what_was_measured_of_another_device_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let old = identity("old");
        let _: &Guess = &old.guess;
        let stored = cost(device(&old), 7);
        store.save_device_cost(&old.uuid, &stored).unwrap();
        assert_eq!(stored_of_device(&store, &old), Some(stored));
        // The file system was copied to a new disk of the same model: its UUID is the same.
        assert_eq!(stored_of_device(&store, &identity("new")), None);
    }

    #[test]
    fn an_old_measurement_is_made_again() {
        let day = 24 * 60 * 60 * 1_000_000_000u64;
        let now = 20_000 * day;
        let at = |days: u64| is_old(&cost("disk".into(), days * day), now);
        assert!(!at(20_000) && !at(19_950));
        assert!(at(19_900), "a hundred days");
        assert!(at(20_100), "the clock was wrong then");
        assert!(at(0), "others used it");
        assert!(is_old(&cost(String::new(), now), now), "of which device?");
        let mut filling = cost("disk".into(), now - day / 2);
        filling.first_touch = Some(FirstTouch {
            granule: 512 << 10,
            latency: 33e-3,
            depth: 10,
        });
        assert!(!is_old(&filling, now));
        assert!(is_old(&filling, now + day), "it may be filled by then");
    }
}

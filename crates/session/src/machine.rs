//! The facts of this machine for a profile, with what its devices cost: measured once, kept, else guessed.

use anyhow::{Context, Result};
use headstart_model::machine::{Cost, DeviceClass, Machine};
use headstart_model::profile::Need;
use headstart_model::{FilePath, Profile};
use headstart_plan::Want;
use headstart_store::{DeviceCost, Store};
use headstart_system::device::{ProbeOptions, default_cost, probe};
use headstart_system::snapshot::{self, DeviceIdentity, Options, Wanted};
use std::cell::RefCell;
use std::collections::HashSet;

/// Where costs come from.
pub struct Costs<'a> {
    /// Where measured costs are kept.
    pub store: &'a Store,
    /// The class that all devices are taken to have, instead of what was measured or guessed.
    pub class: Option<DeviceClass>,
    /// Whether all are measured anew: what is kept may be of another device, or of a busy moment.
    pub anew: bool,
}

fn wanted(profile: &Profile) -> Vec<Wanted> {
    let need = |want: &Want| match want.need {
        _ if want.data => snapshot::Need::Data,
        Need::List => snapshot::Need::List,
        Need::Missing | Need::Stat | Need::Open => snapshot::Need::Stat,
    };
    headstart_plan::wanted(profile)
        .iter()
        .map(|want| Wanted {
            path: want.path.clone(),
            need: need(want),
        })
        .collect()
}

/// Takes a snapshot of what the profile names. Devices without a known cost are measured, a second each at most; what
/// cannot be measured or kept is told to `tell`, and then guessed.
pub fn snapshot(profile: &Profile, costs: &Costs<'_>, tell: &mut dyn FnMut(String)) -> Result<Machine> {
    let wanted = wanted(profile);
    let unknown: RefCell<Vec<DeviceIdentity>> = RefCell::default();
    let cost = |identity: &DeviceIdentity, anew: bool| -> Option<Cost> {
        let stored = costs.store.device_cost(&identity.uuid).map(|stored| stored.cost);
        if let Some(class) = costs.class {
            return Some(
                stored
                    .filter(|cost| cost.class == class)
                    .unwrap_or_else(|| default_cost(class)),
            );
        }
        if stored.is_none() || anew {
            unknown.borrow_mut().push(identity.clone());
        }
        stored
    };
    let take = |cost: &snapshot::Costs<'_>| {
        let options = Options {
            costs: cost,
            ..Options::default()
        };
        snapshot::snapshot(&wanted, &options).context("cannot look at this machine")
    };
    let machine = take(&|identity| cost(identity, costs.anew))?;
    let unknown = unknown.take();
    if measure(&unknown, costs.store, tell) {
        take(&|identity| cost(identity, false))
    } else {
        Ok(machine)
    }
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
        match probe(
            facts,
            &ProbeOptions {
                seed,
                ..ProbeOptions::default()
            },
        ) {
            Ok(measured) => {
                let stored = DeviceCost {
                    cost: measured.cost,
                    measured_unix_ns: seed,
                };
                match store.save_device_cost(&identity.uuid, &stored) {
                    Ok(()) => new = true,
                    Err(error) => tell(format!(
                        "the cost of {} is not kept: {error}",
                        identity.mount_point
                    )),
                }
            }
            Err(error) => tell(format!(
                "the device of {} is not measured, taken for {:?} ({}): {error}",
                identity.mount_point, identity.guess.class, identity.guess.reason
            )),
        }
    }
    new
}

/// The device that a path is on, and whether its cost was measured.
pub fn device_of(
    path: &FilePath,
    store: &Store,
) -> Result<Option<(headstart_model::machine::Device, bool, String)>> {
    let measured = RefCell::new((false, String::new()));
    let cost = |identity: &DeviceIdentity| {
        let stored = store.device_cost(&identity.uuid).map(|stored| stored.cost);
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

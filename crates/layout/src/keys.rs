//! What is done for some keys: their orders, and moving their files.

use crate::apply::{STOP, apply};
use crate::moving::volume::TAINTS;
use crate::one_file_system::{Bounds, rests, room};
use crate::order::{Order, plan};
use crate::own_profile;
use crate::pace::halt;
use crate::results::{LayoutResult, moved_unix_ns, status};
use crate::survey::{WAITS, Which, survey};
use crate::waiting::{self, Waiting};
use anyhow::{Result, bail};
use headstart_model::machine::Machine;
use headstart_model::profile::Entry;
use headstart_model::{FilePath, Profile};
use headstart_start::keys::find_known;
use headstart_start::machine::{Costs, Measure, snapshot};
use headstart_start::{now_unix_ns, plan_again};
use headstart_store::{KeyDir, Store};
use headstart_system::mounts::MountTable;
use headstart_system::own_program;
use headstart_system::thread;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A shutdown waits no longer than this for programs to be moved, and the unit's own bound is beyond it.
const SHUTDOWN_WAITS: Duration = Duration::from_secs(5);

/// What is kept of these keys; of all, if none is named.
fn named(names: &[String], store: &Store) -> Result<Vec<KeyDir>> {
    match names {
        [] => Ok(store.keys()?.iter().map(|key| store.key(key)).collect()),
        names => {
            let mut keys: Vec<KeyDir> = Vec::new();
            for name in names {
                let key = find_known(name, store)?;
                if keys.iter().all(|other| other.path() != key.path()) {
                    keys.push(key);
                }
            }
            Ok(keys)
        }
    }
}

/// The orders for these keys as files are now, and the machine that they are of. Nothing is moved.
pub fn orders(
    names: &[String],
    store: &Store,
    tell: &mut dyn FnMut(String),
) -> Result<(Machine, Vec<Order>)> {
    let (machine, mut orders) = planned(&named(names, store)?, store, Measure::Unknown, tell)?;
    let mounts = MountTable::read()?;
    let moved = status(store).unwrap_or_default();
    for order in &mut orders {
        let before = order.clone();
        match survey(order, &machine, &mounts, Which::Others, false, &mut || false) {
            Ok(volume) => order.room = Some(room(&volume)?),
            Err(why) => {
                *order = before;
                order.declined.get_or_insert(why);
            }
        }
        if let Some(device) = machine.devices.get(order.device as usize) {
            let last = moved_unix_ns(&moved, &device.mount_point.to_string());
            let rests = rests(device, last, now_unix_ns());
            order.declined = order.declined.take().or(rests);
        }
    }
    Ok((machine, orders))
}

/// Moves the files of these keys, and plans them anew. Programs that have to wait for a shutdown are
/// remembered for it.
pub fn apply_to(
    names: &[String],
    store: &Store,
    mut bounds: Bounds,
    tell: &mut dyn FnMut(String),
    progress: &mut dyn FnMut(&LayoutResult),
) -> Result<Vec<LayoutResult>> {
    let began = Instant::now();
    let mut names = names.to_vec();
    let system = waiting::system();
    if !bounds.force && matches!(&*system, "initializing" | "starting") {
        bail!(
            "the machine is still starting: nothing is moved before it is up (--force does it all the same)"
        );
    }
    if bounds.at_shutdown {
        if !bounds.force && system != "stopping" {
            bail!(
                "the machine is not shutting down: programs that run are not moved now (--force does it all the same)"
            );
        }
        if system == "stopping" {
            bounds.until = Some(began + SHUTDOWN_WAITS);
        }
        if names.is_empty() {
            let Some(waiting) = waiting::waiting(store)? else {
                bail!("no program waits to be moved");
            };
            // A key that is gone meanwhile has nothing to be moved.
            let is_every_key = waiting.keys.is_empty();
            names = waiting.keys;
            names.retain(|name| find_known(name, store).is_ok());
            if names.is_empty() && !is_every_key {
                waiting::done(store, &[])?;
                bail!("no program waits to be moved");
            }
            bounds.force |= waiting.force;
        }
        // headstart is to be moved, too, and what runs cannot be.
        own_program::run_from_memory();
    }
    let keys = named(&names, store)?;
    let (measure, planning) = match bounds.until {
        // What a device costs is known from before, or taken for what is usual.
        Some(until) => (Measure::Nothing, Some(Planning::until(until))),
        None => (Measure::Unknown, None),
    };
    let (machine, orders) = planned(&keys, store, measure, tell)?;
    drop(planning);
    let moved = apply(orders, &machine, &keys, store, bounds, progress)?;
    if bounds.at_shutdown {
        waiting::done(store, &moved)?;
    } else if moved
        .iter()
        .any(|kept| [WAITS, TAINTS].iter().any(|why| kept.left.contains_key(*why)))
    {
        let waiting = Waiting {
            keys: names,
            force: bounds.force,
        };
        waiting::remember(store, waiting, tell)?;
    }
    if moved.iter().any(|kept| kept.files > 0) {
        for key in &keys {
            // A plan that is older still names the right files, in the order in which they lay.
            if halt(&STOP, bounds.until).is_some() {
                break;
            }
            plan_again(store, key, tell)?;
        }
    }
    Ok(moved)
}

/// While nothing is moved yet, the process ends when its time is over: who waits for a shutdown does not wait
/// for a device.
struct Planning(#[allow(dead_code)] Sender<()>);

impl Planning {
    fn until(until: Instant) -> Planning {
        let (over, told) = channel();
        let wait = move || {
            let left = until.saturating_duration_since(Instant::now());
            if told.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                std::process::exit(0);
            }
        };
        // Without a thread only the unit's own limit is left.
        let _ = thread::spawn("planning", Box::new(wait));
        Planning(over)
    }
}

fn planned(
    keys: &[KeyDir],
    store: &Store,
    measure: Measure,
    tell: &mut dyn FnMut(String),
) -> Result<(Machine, Vec<Order>)> {
    let mut profiles = Vec::new();
    for key in keys {
        profiles.extend(key.profile().or_tell(&mut *tell));
    }
    let Some(first) = profiles.first() else {
        bail!("nothing was learned yet of what is to be moved: `headstart status` lists what was");
    };
    let own = own_profile::profile(keys, first.page_size);
    let of_ours = |path: &FilePath| {
        own.iter()
            .flat_map(|own| &own.entries)
            .any(|entry| entry.path == *path)
    };
    profiles.splice(0..0, own.clone());
    let profile = together(&profiles)?;
    let costs = Costs {
        store,
        class: None,
        measure,
    };
    let machine = snapshot(&profile, &costs, tell)?;
    let mut orders = plan(&profiles, &machine);
    // Where there is nothing but headstart's own files, nothing is read ahead.
    for item in orders.iter_mut().flat_map(|order| &mut order.items) {
        item.own = of_ours(&item.facts.path);
    }
    orders.retain(|order| order.items.iter().any(|item| !item.own));
    Ok((machine, orders))
}

/// One profile that names all files of all.
fn together(profiles: &[Profile]) -> Result<Profile> {
    let Some(mut all) = profiles.first().cloned() else {
        bail!("there is no profile");
    };
    let mut entries = BTreeMap::<&FilePath, Entry>::new();
    for profile in profiles {
        let threshold = profile.policy.threshold();
        for entry in profile.entries.iter().filter(|entry| entry.weight >= threshold) {
            let merged = entries.entry(&entry.path).or_insert_with(|| entry.clone());
            // Each profile has its own threshold; here all that is needed has the weight of what always is.
            merged.weight = 1.0;
            if !entry.pages(threshold).is_empty() {
                merged.ranges.clone_from(&entry.ranges);
                merged.ranges.iter_mut().for_each(|range| range.weight = 1.0);
            }
        }
    }
    all.entries = entries.into_values().collect();
    Ok(all)
}

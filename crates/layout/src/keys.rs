//! The orders for what is known of some keys.

use crate::order::{Order, plan};
use anyhow::{Result, bail};
use headstart_model::machine::Machine;
use headstart_model::profile::Entry;
use headstart_model::{FilePath, Profile};
use headstart_session::keys::known;
use headstart_session::machine::{Costs, Measure, snapshot};
use headstart_store::{KeyDir, Store};
use std::collections::BTreeMap;

/// What is kept of these keys; of all, if none is named.
pub fn named(names: &[String], store: &Store) -> Result<Vec<KeyDir>> {
    match names {
        [] => Ok(store.keys()?.iter().map(|key| store.key(key)).collect()),
        names => names.iter().map(|name| known(name, store)).collect(),
    }
}

/// The orders for these keys, and the machine that they are of.
pub fn orders(store: &Store, keys: &[KeyDir], tell: &mut dyn FnMut(String)) -> Result<(Machine, Vec<Order>)> {
    let mut profiles = Vec::new();
    for key in keys {
        profiles.extend(key.profile().or_tell(&mut *tell));
    }
    let Some(all) = together(&profiles) else {
        bail!("nothing was learned yet of what is to be moved: `headstart status` lists what was");
    };
    let costs = Costs {
        store,
        class: None,
        measure: Measure::Unknown,
    };
    let machine = snapshot(&all, &costs, tell)?;
    let orders = plan(&profiles, &machine);
    Ok((machine, orders))
}

/// One profile that names all files of all.
fn together(profiles: &[Profile]) -> Option<Profile> {
    let mut entries = BTreeMap::<&FilePath, Entry>::new();
    let mut all = profiles.first()?.clone();
    for entry in profiles.iter().flat_map(|profile| &profile.entries) {
        let known = entries.entry(&entry.path).or_insert_with(|| entry.clone());
        if known.ranges.is_empty() {
            *known = entry.clone();
        }
    }
    all.entries = entries.into_values().collect();
    Some(all)
}

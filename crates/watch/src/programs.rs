//! Who is asked about programs, by the commands of people: the daemon, or where there is none the state directory itself.

use crate::apps::Apps;
use crate::control::{Client, ClientError};
use crate::daemon::of_all;
use crate::service::{App, Reading, ServiceError};
use anyhow::{Result, bail};
use headstart_model::Key;
use headstart_session::{keys, store};
use headstart_store::ENVIRONMENT;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What to say of a name that names no program.
pub fn not_known(name: &str) -> anyhow::Error {
    anyhow::anyhow!("the program {name:?} is not known: `headstart apps list` lists those that are")
}

/// The key of a program that was not started yet: of an executable what its start will have, else the text itself.
pub fn meant(name: &str) -> Result<Key> {
    let candidates = keys::candidates(name);
    let Some(key) = candidates.get(1).or(candidates.first()) else {
        bail!("{name:?} is no key: name a program by its path, or a unit");
    };
    Ok(key.clone())
}

/// Who knows the programs.
pub enum Programs {
    /// The daemon.
    Daemon(Client),
    /// The state directory, where there is no daemon, or somebody names another than its own.
    Directory(Apps),
}

impl Programs {
    /// The daemon, or the state directory if one is named or there is no daemon.
    pub fn new(state: Option<PathBuf>) -> Result<Programs> {
        // The daemon has one state directory, which is not the one that somebody names.
        if state.is_none() && std::env::var_os(ENVIRONMENT).is_none() {
            match Client::connect() {
                Ok(client) => return Ok(Programs::Daemon(client)),
                Err(ClientError::NotThere) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Programs::Directory(Apps::of(store(state)?)))
    }

    /// All that the caller may be told of.
    pub fn list(&mut self) -> Result<Vec<App>> {
        let client = match self {
            Programs::Directory(apps) => return Ok(apps.list(None, None, usize::MAX)?),
            Programs::Daemon(client) => client,
        };
        let (mut all, mut after) = (Vec::new(), Value::Null);
        loop {
            let mut page = client.call("List", json!({ "after": after }))?;
            let apps: Vec<App> = serde_json::from_value(page["apps"].take())?;
            // A daemon that said nothing new would be asked for ever.
            let more = !apps.is_empty() && page["next"].is_string() && page["next"] != after;
            all.extend(apps);
            after = page["next"].take();
            if !more {
                return Ok(all);
            }
        }
    }

    /// What is known of a program by any of the keys that the user may mean.
    pub fn find(&mut self, name: &str) -> Result<Option<App>> {
        let candidates = keys::candidates(name);
        for key in &candidates {
            let found = match self {
                Programs::Directory(apps) => match apps.app(key) {
                    Err(ServiceError::UnknownKey(_)) => None,
                    app => Some(app?),
                },
                Programs::Daemon(client) => match client.call("Show", json!({ "key": key })) {
                    Ok(mut reply) => Some(serde_json::from_value(reply["app"].take())?),
                    Err(ClientError::Fault { name, .. }) if name == "UnknownKey" => None,
                    // Others than root are told of their own programs only.
                    Err(ClientError::Denied) => {
                        let mut own = self.list()?;
                        own.retain(|app| {
                            let its = Key::new(&app.key);
                            candidates.iter().any(|key| {
                                key.as_str() == app.key
                                    || its.as_ref().is_ok_and(|its| of_all(its) == key.as_str())
                            })
                        });
                        return Ok(own.into_iter().next());
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same; an error if nothing is.
    pub fn known(&mut self, name: &str) -> Result<App> {
        self.find(name)?.ok_or_else(|| not_known(name))
    }

    /// Has a program "enabled", "disabled" or "forgotten".
    pub fn change(&mut self, key: &Key, done: &str) -> Result<()> {
        let on = done == "enabled";
        match (self, done) {
            (Programs::Directory(apps), "forgotten") => apps.forget(key)?,
            (Programs::Directory(apps), _) => apps.set_enabled(key, on)?,
            (Programs::Daemon(client), "forgotten") => drop(client.call("Forget", json!({ "key": key }))?),
            (Programs::Daemon(client), _) => {
                client.call("SetEnabled", json!({ "key": key, "enabled": on }))?;
            }
        }
        Ok(())
    }

    /// Has the daemon read now what a program needs.
    pub fn now(&mut self, key: &str) -> Result<Reading> {
        match self {
            Programs::Daemon(client) => Ok(serde_json::from_value(
                client.call("ReadNow", json!({ "key": key }))?,
            )?),
            Programs::Directory(_) => bail!(
                "{}; without it, `headstart replay {key:?}` reads the same",
                ClientError::NotThere
            ),
        }
    }
}

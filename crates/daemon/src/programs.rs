//! Who is asked about programs, by the commands of people: the daemon, or where there is none the state
//! directory itself.

use crate::apps::Apps;
use crate::control::{Client, ClientError};
use crate::key::SESSION;
use crate::service::{App, Reading, ServiceError};
use anyhow::{Result, bail};
use headstart_model::Key;
use headstart_start::{keys, store};
use headstart_store::ENVIRONMENT;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A name that names no program.
#[derive(Debug, thiserror::Error)]
#[error("the program {0:?} is not known: `headstart apps list` lists those that are")]
struct NotKnown(String);

/// The key of a program that was not started yet, of an executable what its start will have; else the text
/// itself, and what it is then.
fn meant(name: &str) -> Result<(Key, &'static str)> {
    let candidates = keys::candidates(name);
    let Some(key) = candidates.get(1).or(candidates.first()) else {
        bail!("{name:?} is no key: name a program by its path, or a unit");
    };
    let text = key.of_all();
    let is_program = text.starts_with('/') || text.ends_with(".service") || text == SESSION;
    let is = match is_program {
        true => "",
        false => ", a name for `headstart run --name`: no program is found by it",
    };
    Ok((key.clone(), is))
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
        Ok(Programs::Directory(Apps::new(store(state)?)))
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

    /// What is known of a program by any of the keys that the user may mean, whoever's starts they are of.
    fn find(&mut self, candidates: &[Key]) -> Result<Option<App>> {
        for key in candidates {
            let app = match self {
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
                        own.retain(|app| candidates.iter().any(|key| key.as_str() == app.key));
                        return Ok(own.into_iter().next());
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            if app.is_some() {
                return Ok(app);
            }
        }
        Ok(None)
    }

    /// The program that the user means: by its key, or by its path the one whose starts a user's are. An
    /// error if nothing is known of it, or of several users' starts.
    pub fn find_known(&mut self, name: &str) -> Result<App> {
        let candidates = keys::candidates(name);
        if let Some(app) = self.find(&candidates)? {
            return Ok(app);
        }
        let is_meant = |app: &App| {
            Key::new(&app.key).is_ok_and(|key| candidates.iter().any(|one| one.as_str() == key.of_all()))
        };
        let mut theirs = self.list()?;
        theirs.retain(is_meant);
        match (theirs.pop(), theirs.is_empty()) {
            (None, _) => Err(NotKnown(name.into()).into()),
            (Some(app), true) => Ok(app),
            (Some(_), false) => {
                bail!("several users start {name:?}: name a key of `headstart apps list`")
            }
        }
    }

    /// The key that is to be "enabled", "disabled" or "forgotten" where the user names a program so, and what
    /// is to be said of it besides. By its path it is disabled for all users, and may be before its first
    /// start.
    pub fn meant(&mut self, name: &str, done: &str) -> Result<(Key, &'static str)> {
        let app = match done {
            "disabled" => self.find(&keys::candidates(name))?,
            _ => match self.find_known(name) {
                Err(error) if done == "enabled" && error.is::<NotKnown>() => None,
                found => Some(found?),
            },
        };
        match app {
            Some(app) => Ok((Key::new(app.key)?, "")),
            None => meant(name),
        }
    }

    /// What becomes of the known keys of other users' starts of a program when its key is "enabled",
    /// "disabled" or "forgotten": a line each.
    pub fn describe_others(&mut self, key: &Key, done: &str) -> Result<String> {
        let is_other = |app: &App| {
            app.key != key.as_str() && Key::new(&app.key).is_ok_and(|one| one.of_all() == key.of_all())
        };
        let tell = |other: App| match done {
            // What is said of all users' starts is said of each one's.
            "disabled" if key.user().is_none() => format!("{} is disabled with it\n", other.key),
            "enabled" if key.user().is_none() => {
                format!(
                    "{} is enabled with it, unless it was disabled by itself\n",
                    other.key
                )
            }
            _ => format!("{} is as it was: name it to have it {done}, too\n", other.key),
        };
        Ok(self.list()?.into_iter().filter(is_other).map(tell).collect())
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

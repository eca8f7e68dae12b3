//! What a peer may call, and what the daemon is asked then.

use super::message::{Call, Fault, Parameters, needed};
use super::operations::Operations;
use super::{INTERFACE, process};
use crate::service::{Peer, Service, ServiceError};
use headstart_model::Key;
use serde_json::{Value, json};

const STANDARD: &str = "org.varlink.service";
const DESCRIPTIONS: [(&str, &str); 2] = [
    (STANDARD, include_str!("org.varlink.service.varlink")),
    (INTERFACE, include_str!("headstart.Control.varlink")),
];

/// So many programs are in one reply: 16 keys of 4 KiB fit into a message, and what is known of them is
/// looked up in milliseconds. Keys that hold what JSON writes longer take more room: [`List`](Dispatch::list)
/// leaves out what does not fit.
const MOST_APPS: usize = 16;

/// The bytes of the programs in one reply.
const MOST_BYTES: usize = super::MOST_MESSAGE - 16 * 1024;

/// Whether a method does nothing but tell something.
pub fn only_tells(method: &str) -> bool {
    let tells = |interface: &str, names: &[&str]| {
        let name = method
            .strip_prefix(interface)
            .and_then(|rest| rest.strip_prefix('.'));
        name.is_some_and(|name| names.contains(&name))
    };
    tells(STANDARD, &["GetInfo", "GetInterfaceDescription"]) || tells(INTERFACE, &["List", "Show"])
}

type Answer = Result<Value, Fault>;

/// One call of one peer.
pub struct Dispatch<'a> {
    pub service: &'a dyn Service,
    pub peer: &'a Peer,
    pub operations: &'a mut Operations,
}

impl Dispatch<'_> {
    /// The reply to a call.
    pub fn answer(&mut self, mut call: Call) -> Answer {
        let unknown = |method: &str| Fault::standard("MethodNotFound", json!({ "method": method }));
        let full = std::mem::take(&mut call.method);
        let Some((interface, method)) = full.rsplit_once('.') else {
            return Err(Fault::parameter("method"));
        };
        let mut given = Parameters::from_call(&mut call);
        if call.upgrade {
            return Err(unknown(&full));
        }
        match (interface, method) {
            (STANDARD, "GetInfo") => given.end().map(|()| info()),
            (STANDARD, "GetInterfaceDescription") => {
                let name = needed("interface", given.text("interface")?)?;
                given.end()?;
                description(&name)
            }
            (INTERFACE, "List") => {
                let after = given.text("after")?;
                given.end()?;
                self.list(after.as_deref())
            }
            (INTERFACE, "BeginOperation") => {
                let name = needed("name", given.text("name")?)?;
                let pid = given.number("pid")?;
                given.end()?;
                self.begin_operation(&name, pid)
            }
            (INTERFACE, "EndOperation") => {
                let (id, name) = (given.number("id")?, given.text("name")?);
                given.end()?;
                self.end(id, name.as_deref())
            }
            (INTERFACE, "Show" | "SetEnabled" | "Forget" | "ReadNow") if !self.peer.is_root() => {
                Err(Fault::standard("PermissionDenied", json!({})))
            }
            (INTERFACE, "Show" | "SetEnabled" | "Forget" | "ReadNow") => self.of_key(method, given),
            (STANDARD | INTERFACE, _) => Err(unknown(&full)),
            _ => Err(Fault::standard(
                "InterfaceNotFound",
                json!({ "interface": interface }),
            )),
        }
    }

    /// What root alone may do, with a key.
    fn of_key(&self, method: &str, mut given: Parameters) -> Answer {
        let text = needed("key", given.text("key")?)?;
        let key = Key::new(text).map_err(|_| Fault::parameter("key"))?;
        let on = match method {
            "SetEnabled" => needed("enabled", given.flag("enabled")?)?,
            _ => false,
        };
        given.end()?;
        let service = self.service;
        match method {
            "Show" => service.app(&key).map(|app| json!({ "app": app })),
            "SetEnabled" => service.set_enabled(&key, on).map(|()| json!({})),
            "Forget" => service.forget(&key).map(|()| json!({})),
            _ => service.now(&key).map(|reading| json!(reading)),
        }
        .map_err(fault)
    }

    fn list(&self, after: Option<&str>) -> Answer {
        let user = (!self.peer.is_root()).then_some(self.peer.uid);
        // One more than is told, to know whether there are more.
        let listed = self.service.apps(user, after, MOST_APPS + 1).map_err(fault)?;
        let (mut apps, mut bytes) = (Vec::new(), 0);
        for app in listed.iter().take(MOST_APPS) {
            let app = json!(app);
            bytes += app.to_string().len();
            if !apps.is_empty() && bytes > MOST_BYTES {
                break;
            }
            apps.push(app);
        }
        let next = match apps.len() < listed.len() {
            true => apps.last().map(|app| app["key"].clone()),
            false => None,
        };
        Ok(json!({ "apps": apps, "next": next }))
    }

    fn begin_operation(&mut self, name: &str, pid: Option<u64>) -> Answer {
        if crate::key::of_operation(self.peer.uid, name).is_none() {
            return Err(Fault::parameter("name"));
        }
        let other = match pid {
            None => None,
            Some(pid) => Some(process::open(self.peer, pid).ok_or_else(|| {
                let message = format!("there is no process {pid} of yours: name one of your own that runs");
                Fault::own("NotYourProcess", json!({ "pid": pid }), &message)
            })?),
        };
        let peer = other.as_ref().unwrap_or(self.peer);
        let id = self.service.begin_operation(peer, name).map_err(fault)?;
        self.operations.add(self.peer.uid, name, id);
        Ok(json!({ "id": id }))
    }

    fn end(&mut self, id: Option<u64>, name: Option<&str>) -> Answer {
        let id = match (id, name) {
            (Some(id), None) => id,
            (None, Some(name)) => self.operations.last(self.peer.uid, name).ok_or_else(|| {
                let message =
                    format!("no operation {name:?} of yours is under way: it has ended, or was never begun");
                Fault::own("UnknownOperation", json!({}), &message)
            })?,
            (Some(_), Some(_)) => return Err(Fault::parameter("name")),
            (None, None) => return Err(Fault::parameter("id")),
        };
        let ended = self.service.end_operation(self.peer, id);
        // One that is another user's stays known to that user.
        let unknown = matches!(ended, Err(ServiceError::UnknownOperation(_)));
        if ended.is_ok() || unknown && name.is_some() {
            self.operations.remove(id);
        }
        ended.map(|()| json!({})).map_err(fault)
    }
}

fn info() -> Value {
    json!({
        "vendor": "headstart",
        "product": "headstart",
        "version": env!("CARGO_PKG_VERSION"),
        "url": "",
        "interfaces": DESCRIPTIONS.map(|(name, _)| name),
    })
}

fn description(interface: &str) -> Answer {
    let description = DESCRIPTIONS.iter().find(|(name, _)| *name == interface);
    match description {
        Some((_, text)) => Ok(json!({ "description": text })),
        None => Err(Fault::standard(
            "InterfaceNotFound",
            json!({ "interface": interface }),
        )),
    }
}

fn fault(error: ServiceError) -> Fault {
    let message = error.to_string();
    match error {
        ServiceError::UnknownKey(key) => Fault::own("UnknownKey", json!({ "key": key }), &message),
        ServiceError::UnknownOperation(_) => Fault::own("UnknownOperation", json!({}), &message),
        ServiceError::TooMany(_) => Fault::own("TooManyOperations", json!({}), &message),
        ServiceError::Failed(_) => Fault::own("Failed", json!({}), &message),
    }
}

//! Varlink's messages: a call, its parameters, and the replies.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What a client asks for. Other members of a message are ignored, as the protocol demands.
#[derive(Debug, Deserialize)]
pub struct Call {
    pub method: String,
    #[serde(default)]
    pub parameters: Option<Map<String, Value>>,
    /// No reply is wanted.
    #[serde(default)]
    pub oneway: bool,
    /// The connection is to become something else: nothing here does.
    #[serde(default)]
    pub upgrade: bool,
}

/// An error as a reply: its name and parameters.
#[derive(Debug, PartialEq)]
pub struct Fault {
    pub name: String,
    pub parameters: Value,
}

impl Fault {
    /// An error of the interface that every service has.
    pub fn standard(name: &str, parameters: Value) -> Fault {
        Fault {
            name: format!("org.varlink.service.{name}"),
            parameters,
        }
    }

    /// An error of this service's own interface, in words besides.
    pub fn own(name: &str, mut parameters: Value, message: &str) -> Fault {
        parameters["message"] = message.into();
        Fault {
            name: format!("{}.{name}", super::INTERFACE),
            parameters,
        }
    }

    /// A parameter is missing, of another kind, or not known.
    pub fn parameter(name: &str) -> Fault {
        Fault::standard("InvalidParameter", json!({ "parameter": name }))
    }
}

/// The parameters of a call, each taken once; what is left over at the end is one that is not known.
pub struct Parameters(Map<String, Value>);

impl Parameters {
    pub fn from_call(call: &mut Call) -> Parameters {
        Parameters(call.parameters.take().unwrap_or_default())
    }

    /// One of a kind; `None` if it is missing or null.
    fn take<T>(&mut self, name: &str, kind: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, Fault> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => kind(&value).map(Some).ok_or_else(|| Fault::parameter(name)),
        }
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Fault> {
        self.take(name, |value| value.as_str().map(String::from))
    }

    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Fault> {
        self.take(name, Value::as_u64)
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        self.take(name, Value::as_bool)
    }

    /// Nothing else was given.
    pub fn end(self) -> Result<(), Fault> {
        match self.0.keys().next() {
            Some(name) => Err(Fault::parameter(name)),
            None => Ok(()),
        }
    }
}

/// A parameter that has to be there.
pub fn needed<T>(name: &str, value: Option<T>) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::parameter(name))
}

/// A reply as it is sent, the zero byte with it.
pub fn reply(answer: Result<Value, Fault>) -> Vec<u8> {
    let message = match answer {
        Ok(parameters) => json!({ "parameters": parameters }),
        Err(fault) => json!({ "error": fault.name, "parameters": fault.parameters }),
    };
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    bytes
}

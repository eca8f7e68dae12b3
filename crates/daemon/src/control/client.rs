//! A client of the control socket: one connection, one call at a time, each with a deadline.

use super::{INTERFACE, MOST_MESSAGE, SOCKET};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A call that the daemon has to be started for is answered within this time, or it does not start.
const WITHIN: Duration = Duration::from_secs(20);

/// Why a call was not answered as it should have been.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody serves the socket.
    #[error("the daemon {}", crate::units::how_to_start())]
    NotThere,
    /// The daemon does not let this user.
    #[error("only root may do that: use sudo")]
    Denied,
    /// It said no, and why.
    #[error("{message}")]
    Fault {
        /// The error's name, without its interface.
        name: String,
        /// In words.
        message: String,
    },
    /// The connection failed.
    #[error("the daemon at {SOCKET}: {0}; `systemctl status headstartd` tells how it is")]
    Io(#[from] io::Error),
}

/// A connection to the daemon.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects to the daemon.
    pub fn connect() -> Result<Client, ClientError> {
        Client::connect_to(Path::new(SOCKET))
    }

    pub(super) fn connect_to(path: &Path) -> Result<Client, ClientError> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(io::Error::from)?;
        // A connection waits, too, where as many do as the socket lets.
        set_socket_timeout(&socket, Timeout::Send, Some(WITHIN)).map_err(io::Error::from)?;
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Client {
                stream: socket.into(),
            }),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => Err(ClientError::NotThere),
            Err(error) => Err(ClientError::Io(error.into())),
        }
    }

    /// Calls a method of [`INTERFACE`].
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value, ClientError> {
        let call = json!({ "method": format!("{INTERFACE}.{method}"), "parameters": parameters });
        let mut message = call.to_string().into_bytes();
        message.push(0);
        if message.len() > MOST_MESSAGE {
            let why = format!(
                "a message of {} bytes is longer than {MOST_MESSAGE}",
                message.len()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, why).into());
        }
        // Who is turned away at once finds the reason to read.
        let sent = self.stream.write_all(&message);
        let reply = match (self.receive(), sent) {
            (Err(_), Err(error)) => return Err(error.into()),
            (reply, _) => reply?,
        };
        let mut reply: Value = serde_json::from_slice(&reply).map_err(io::Error::from)?;
        match reply.get("error").and_then(Value::as_str) {
            None => Ok(reply["parameters"].take()),
            Some("org.varlink.service.PermissionDenied") => Err(ClientError::Denied),
            Some(name) => {
                let text = reply["parameters"]["message"].as_str().map(String::from);
                Err(ClientError::Fault {
                    name: name.rsplit('.').next().unwrap_or(name).into(),
                    message: text.unwrap_or_else(|| format!("{name}: {}", reply["parameters"])),
                })
            }
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + WITHIN;
        let mut reply = Vec::new();
        let mut room = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("no answer within {} s", WITHIN.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            self.stream.set_read_timeout(Some(left))?;
            let got = match self.stream.read(&mut room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                // The deadline is looked at above.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            reply.extend(room.iter().take(got));
            if reply.last() == Some(&0) {
                reply.pop();
                return Ok(reply);
            }
            if reply.len() >= MOST_MESSAGE {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }
}

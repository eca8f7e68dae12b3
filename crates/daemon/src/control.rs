//! The control socket: who may ask the daemon what, and how. Varlink (<https://varlink.org>): JSON objects,
//! each with a zero byte behind it, so that `varlinkctl` of systemd is a client.
//!
//! One thread serves all connections. Everything that a client decides has a bound: how many connections, how
//! long a message, how long it takes to come and to be taken.

mod allowance;
mod client;
mod dispatch;
mod message;
mod operations;
pub(crate) mod process;
mod server;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError};
pub use server::{listen, serve};

/// Where the socket is. Not in `/run/headstart`, which is readable by root only.
pub const SOCKET: &str = "/run/headstart.socket";

/// The interface's name. It has to have a dot; nobody can own a domain below `headstart`.
pub const INTERFACE: &str = "headstart.Control";

/// The most bytes of a message, either way, with the zero byte behind it.
pub const MOST_MESSAGE: usize = 64 << 10;

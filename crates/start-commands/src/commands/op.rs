//! `headstart op`: a program marks an operation of its own.

use crate::context::Output;
use anyhow::Result;
use clap::Subcommand;
use headstart_daemon::control::{Client, ClientError};
use headstart_start::complain;
use serde_json::json;

/// Mark an operation: a span of a program's or a job's own, such as opening a project, that is learned and
/// read ahead like a start.
///
/// The daemon learns what the process that calls this, and its children, read between `op start` and
/// `op end`, and reads it ahead when the same user begins an operation of the same name again. A program can
/// do the same by the socket itself: see BeginOperation in
/// `varlinkctl introspect /run/headstart.socket headstart.Control`.
///
/// Where the daemon does not run, or refuses, this says so and ends with status 0: a script goes on.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// An operation of the calling process begins.
    Start(Named),
    /// The last operation of this name, which this user began, has ended.
    End(Named),
}

#[derive(Debug, clap::Args)]
struct Named {
    /// The operation: up to 128 bytes, without control characters, and no blanks around it.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output_form: Output,
}

/// Marks it; a daemon that is not there or refuses is told of, and no error.
///
/// # Errors
/// The name is no operation's.
pub fn run(args: Args) -> Result<()> {
    let (named, method, word) = match args.what {
        What::Start(named) => (named, "BeginOperation", "begun"),
        What::End(named) => (named, "EndOperation", "ended"),
    };
    let name = &named.name;
    let mut parameters = json!({ "name": name });
    if method == "BeginOperation" {
        // The shell or the program that called, not this process, which ends at once.
        parameters["pid"] = rustix::process::getppid()
            .map_or(0, |pid| pid.as_raw_nonzero().get())
            .into();
    }
    let reply = match Client::connect().and_then(|mut client| client.call(method, parameters)) {
        Err(error) if !matches!(&error, ClientError::Fault { name, .. } if name == "InvalidParameter") => {
            complain(&format!("the operation is not marked: {error}"));
            return Ok(());
        }
        reply => reply?,
    };
    let document = json!({ "operation": name, "done": word, "id": reply.get("id") });
    named
        .output_form
        .print(&document, || format!("the operation {name} has {word}\n"))
}

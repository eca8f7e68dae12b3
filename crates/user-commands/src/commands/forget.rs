//! `headstart forget`: a key as if it had never been started.

use crate::people::with_names;
use anyhow::Result;
use headstart_start::keys::{describe_others, find_known};
use headstart_start_commands::context::Output;
use headstart_store::Store;
use serde::Serialize;

/// Forget all that is known of a key.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key: a name, or the path of a program.
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    output_form: Output,
}

#[derive(Serialize)]
struct Forgotten {
    forgotten: String,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let kept = find_known(&args.key, store)?;
    let others = describe_others(&kept, store)?;
    kept.forget()?;
    // What was imported serves all users' starts.
    if kept.key().user().is_none() {
        kept.forget_imports()?;
    }
    let forgotten = kept.key().to_string();
    let text = with_names(format!("{forgotten} is forgotten\n{others}"));
    args.output_form.print(&Forgotten { forgotten }, || text)
}

//! `headstart forget`: a key as if it had never been started.

use crate::context::Output;
use crate::starts;
use anyhow::{Result, bail};
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
    let forgotten = match starts::key(&args.key, store) {
        Some(kept) if kept.forget()? => kept.key().to_string(),
        _ => bail!(
            "the key {:?} is not known: `headstart status` lists those that are",
            args.key
        ),
    };
    args.output_form.print(
        &Forgotten {
            forgotten: forgotten.clone(),
        },
        || format!("{forgotten} is forgotten\n"),
    )
}

//! `headstart forget`: a key as if it had never been started.

use crate::context::Output;
use anyhow::Result;
use headstart_model::Key;
use headstart_session::keys::known;
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
    let kept = known(&args.key, store)?;
    let mut others = store.keys()?;
    others.retain(|key| key != kept.key() && key.of_all() == kept.key().of_all());
    kept.forget()?;
    let forgotten = kept.key().to_string();
    args.output_form.print(
        &Forgotten {
            forgotten: forgotten.clone(),
        },
        || {
            let other = |key: &Key| format!("{key} is kept: name it to have it forgotten, too\n");
            let others: String = others.iter().map(other).collect();
            format!("{forgotten} is forgotten\n{others}")
        },
    )
}

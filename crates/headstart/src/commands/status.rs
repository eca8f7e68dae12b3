//! `headstart status`: what is known, and whether it pays.

use crate::context::{Output, colours};
use anyhow::{Result, bail};
use headstart_learn::verdict::compare;
use headstart_model::plan::RequestKind;
use headstart_report::plan::issued;
use headstart_report::profile::page_counts;
use headstart_report::status::{Bypass, KeyStatus, PlanStatus, ProfileStatus, list, text};
use headstart_session::now_unix_ns;
use headstart_session::{complain, keys};
use headstart_store::{KeyDir, Store};

/// List what is known, and whether it pays.
///
/// Whether it pays is told by cold starts with a replay against cold control runs without, see `run --control-every`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// This key only, with its last starts: a name, or the path of a program.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let Some(name) = &args.key else {
        let all: Vec<KeyStatus> = store.keys()?.iter().map(|key| of(&store.key(key))).collect();
        return args
            .output_form
            .print(&all, || list(&all, now_unix_ns(), colours()));
    };
    let Some(kept) = keys::candidates(name)
        .iter()
        .map(|key| store.key(key))
        .find(KeyDir::exists)
    else {
        bail!("the key {name:?} is not known: `headstart status` lists those that are");
    };
    let it = of(&kept);
    args.output_form
        .print(&it, || text(&it, now_unix_ns(), colours()))
}

/// What is known of a key.
pub(super) fn of(kept: &KeyDir) -> KeyStatus {
    let tell = |line: String| complain(&line);
    let profile = kept.profile().or_tell(tell).map(|profile| ProfileStatus {
        runs: profile.runs,
        updated_unix_ns: profile.updated_unix_ns,
        page_size: profile.page_size,
        pages: page_counts(&profile).0,
        paths: profile.entries.len(),
    });
    let file = kept.plan().or_tell(tell);
    let plan = file
        .as_ref()
        .and_then(|file| file.plan().ok())
        .map(|plan| PlanStatus {
            created_unix_ns: plan.created_unix_ns(),
            requests: plan.cut(),
            data_bytes: issued(&plan, RequestKind::Data).1,
            metadata_bytes: issued(&plan, RequestKind::Metadata).1,
        });
    let outcomes = kept.outcomes(tell);
    KeyStatus {
        key: kept.key().to_string(),
        profile,
        plan,
        traces: kept.traces().len(),
        comparison: compare(&outcomes),
        bypass: kept.bypass().map(|bypass| Bypass {
            why: bypass.why,
            every: bypass.every,
        }),
        outcomes,
    }
}

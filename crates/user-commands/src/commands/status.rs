//! `headstart status`: what is known, and whether it pays.

use crate::floor::{Wanted, last_start, start_floor};
use crate::people::with_names;
use anyhow::Result;
use headstart_boot::install::is_enabled;
use headstart_daemon::units::State;
use headstart_inspect::plan::issued;
use headstart_inspect::profile::page_counts;
use headstart_inspect::status::{
    Bypass, FloorStatus, Imported, KeyStatus, PlanStatus, ProfileStatus, list, text,
};
use headstart_inspect::summary::{self, DaemonCost, Running};
use headstart_learn::verdict::{compare, controls};
use headstart_model::Key;
use headstart_model::plan::RequestKind;
use headstart_start::complain;
use headstart_start::keys::find_known;
use headstart_start::machine::{Costs, Measure};
use headstart_start::now_unix_ns;
use headstart_start_commands::context::{Output, colours};
use headstart_store::{KeyDir, MACHINE, Rank, Store};
use rustix::process::geteuid;
use std::path::Path;

/// List what is known, and whether it pays.
///
/// Three lines come first: what is on, what was saved in the last 30 days, and what it cost.
///
/// The verdict compares cold starts with a replay and cold control starts without one, see
/// `run --control-every`; the line `controls` says what the latter cost, and how many there are.
///
/// With a KEY, status also prints the floor, the least time that any order of reads could give the last start
/// with a replay, beside the time that this start took. `headstart floor KEY` says what the floor is made of.
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
        let statuses: Vec<KeyStatus> = known_keys(store)?
            .iter()
            .map(|key| read_status(&store.key(key)))
            .collect();
        let shown = || {
            let now = now_unix_ns();
            let summary = summary::text(&statuses, &running(store), now);
            with_names(match statuses.is_empty() {
                true => summary,
                false => format!("{summary}\n{}", list(&statuses, now, colours())),
            })
        };
        return args.output_form.print(&statuses, shown);
    };
    let kept = find_known(name, store)?;
    let status = KeyStatus {
        floor: floor(&kept, store),
        ..read_status(&kept)
    };
    args.output_form
        .print(&status, || with_names(text(&status, now_unix_ns(), colours())))
}

/// What of headstart is on. What another state directory than the machine's holds says nothing of that.
fn running(store: &Store) -> Running {
    let is_the_machines = store.root() == Path::new(MACHINE);
    let cost = State::cost().filter(|_| is_the_machines);
    Running {
        boots: is_the_machines.then(|| is_enabled(None)),
        has_own_state: !is_the_machines && !geteuid().is_root(),
        runs: is_the_machines && State::read() == State::Runs,
        daemon: cost.map(|cost| DaemonCost {
            memory: cost.memory,
            cpu_ns: cost.cpu_us.saturating_mul(1000),
            age_ns: u64::try_from(cost.age.as_nanos()).unwrap_or(u64::MAX),
        }),
    }
}

/// The keys of which something was learned here, or imported.
pub(super) fn known_keys(store: &Store) -> Result<Vec<Key>> {
    let mut keys = store.keys()?;
    for rank in Rank::ALL {
        keys.extend(store.imports(rank).keys()?);
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The floor of the last start with a replay. For it every file of the start is looked up: some milliseconds
/// for one key, too much for the list of all. It is not kept with the outcome, because it is the floor of the
/// files and devices as they are now. No device is measured.
fn floor(kept: &KeyDir, store: &Store) -> Option<FloorStatus> {
    let start = last_start(kept, Wanted::Replay, &mut |line| complain(&line))?;
    let costs = Costs {
        store,
        class: None,
        measure: Measure::Nothing,
    };
    match start_floor(&start, Some(kept), &costs, None, &mut |line| complain(&line)) {
        Ok(found) => Some(FloorStatus {
            started_unix_ns: start.trace.meta.started_unix_ns,
            took_ns: start
                .outcome
                .as_ref()
                .map_or(start.trace.end.elapsed_ns, |outcome| outcome.elapsed_ns),
            floor: found.floor,
            above: found.above,
        }),
        Err(error) => {
            complain(&format!("the floor of {} is not known: {error:#}", kept.key()));
            None
        }
    }
}

/// What is known of a key, but for its floor.
pub(super) fn read_status(kept: &KeyDir) -> KeyStatus {
    let tell = |line: String| complain(&line);
    let own = kept.plan().or_tell(tell);
    let imported = kept.imported();
    let used = imported
        .as_ref()
        .filter(|_| own.is_none() && !kept.turns().ignores_imports);
    let from = used.map_or(kept, |(_, dir)| dir);
    let profile = from.profile().or_tell(tell).map(|profile| ProfileStatus {
        runs: profile.runs,
        updated_unix_ns: profile.updated_unix_ns,
        page_size: profile.page_size,
        pages: page_counts(&profile).0,
        paths: profile.entries.len(),
    });
    let file = own.or_else(|| from.plan().or_tell(tell));
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
    let comparison = compare(&outcomes);
    KeyStatus {
        key: kept.key().to_string(),
        profile,
        plan,
        imported: imported.as_ref().map(|(rank, dir)| Imported {
            from: dir.origin().unwrap_or_default(),
            is_packaged: *rank == Rank::Packaged,
            is_used: used.is_some(),
        }),
        traces: kept.traces().len(),
        floor: None,
        controls: controls::cost(&outcomes, &comparison),
        control_every: Some(kept.turns().control_every).filter(|every| *every > 0),
        comparison,
        enabled: kept.is_served(),
        bypass: kept.bypass().map(|bypass| Bypass {
            why: bypass.why,
            every: bypass.every,
        }),
        outcomes,
    }
}

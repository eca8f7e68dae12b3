//! `headstart floor`: the least time any order of reads could give a start.

use crate::floor;
use crate::starts::find;
use anyhow::Result;
use headstart_inspect::floor::{Shown, text};
use headstart_start::complain;
use headstart_start::machine::Costs;
use headstart_start_commands::context::Output;
use headstart_start_commands::options;
use headstart_store::Store;
use std::path::Path;

/// Say how fast a start could be at best.
///
/// The floor is the least time that any order of reads could give the start on its devices: at each moment
/// all that is used before it must have been read, and what the start does after it is still to come. It is
/// reckoned by what the devices cost, from what the start surely used.
///
/// For a cold start with a replay it also says where the time above the floor went: until headstart's first
/// request (own time), in a replay that took longer than the devices' best time for what it read (order), in
/// reading what was not used (over-read), in what was used and not read ahead (reads left), and the rest, in
/// which computing waited.
///
/// A start that waited for its devices while it was recorded only says when it needed what at the latest: a
/// trace of a warm start gives the sharper floor. Of a key it is the least of the floors of the starts whose
/// traces are kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A trace; or a key, for its last start with a replay.
    #[arg(value_name = "TRACE|KEY")]
    start: String,
    /// What the devices are taken for: as measured (auto), disk, flash or network as they are on average, or
    /// CLASS,MB/S,MS,DEPTH (disk,120,8,1): what a long read brings, what a small one takes, and how many at
    /// once help.
    #[arg(long, value_name = "MODEL", default_value = "auto", value_parser = options::disk)]
    disk: options::Disk,
    /// Add to the document what is used when, and where it lies.
    #[arg(long, requires = "json")]
    needs: bool,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let recorded = find(Path::new(&args.start), floor::Wanted::Replay, store)?;
    let (class, every) = match args.disk {
        options::Disk::Auto => (None, None),
        options::Disk::Class(class) => (Some(class), None),
        options::Disk::Cost(cost) => (Some(cost.class), Some(cost)),
    };
    let costs = Costs::new(store, class);
    let tell = &mut |line: String| complain(&line);
    let floor = floor::start_floor(&recorded.start, recorded.of.as_ref(), &costs, every, tell)?;
    let shown = Shown {
        start: args.start,
        floor: floor.floor,
        above: floor.above,
        devices: floor.devices.iter().map(Into::into).collect(),
        needs: args.needs.then_some(floor.needs),
    };
    args.output_form.print(&shown, || text(&shown))
}

//! Which files of an order can be moved as they are now: each is looked at, none is opened for writing.

use crate::moves::movable;
use crate::moving::volume::{Volume, may_be_executed, runs};
use crate::order::{Item, Order, judge};
use crate::placed_files::inside;
use crate::settle::settle;
use headstart_model::PageSet;
use headstart_model::machine::{Extent, Machine};
use headstart_system::executions;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Opened, open_checked};
use std::fs::File;
use std::io;

/// Why a program stays for now.
pub(crate) const WAITS: &str = "programs that run: moved at the next shutdown";
/// Why it stays for good.
pub(crate) const RUNS_ON: &str = "programs that run until the machine is off";

/// Why a file stays that another has leased (`F_SETLEASE`).
pub(crate) const LEASED: &str = "leased by another program";

/// Which files an order is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// All but programs that run.
    Others,
    /// What may be executed, as far as it does not lie in the room of an earlier time, when nothing runs any
    /// more.
    Programs(&'a PageSet),
}

/// What an order has to know of a file: the facts that it was made of.
pub(crate) fn expect(item: &Item) -> Expect {
    Expect {
        inode: Some(item.facts.inode),
        size: Some(item.facts.size),
        mtime_ns: Some(item.facts.mtime_ns),
        generation: (item.facts.generation != 0).then_some(item.facts.generation),
        ..Expect::default()
    }
}

/// Leaves of an order what can be moved, with where it lies now; counts the rest by reason. What lies in its
/// order already stays, unless `all` are to be moved. Where it `ends` before all were looked at, the order is
/// not one. The order is judged anew. `Err` says why nothing can be moved on that file system.
pub(crate) fn survey(
    order: &mut Order,
    machine: &Machine,
    mounts: &MountTable,
    which: Which<'_>,
    all: bool,
    ends: &mut dyn FnMut() -> bool,
) -> Result<Volume, String> {
    let device = machine
        .devices
        .get(order.device as usize)
        .ok_or("it is on no device")?;
    let mut volume = Volume::open(
        mounts,
        device.mount_point.as_path(),
        device.node.as_path(),
        &device.fstype,
    )?;
    // At a shutdown nobody looks at that any more.
    if matches!(which, Which::Others) && executions::taint() {
        volume.leave_programs();
    }
    let page = u64::from(machine.page_size);
    for mut item in std::mem::take(&mut order.items) {
        if ends() {
            break;
        }
        match survey_file(&item, mounts, &volume) {
            Err(why) => order.leave(why),
            Ok(looked) if !is_for(&looked, which) => {}
            Ok(Surveyed { runs: true, .. }) if matches!(which, Which::Others) => order.leave(WAITS),
            Ok(Surveyed { extents, .. }) => {
                item.ranges = movable(&item.ranges, item.facts.size, &extents, page);
                item.facts.extents = extents;
                match item.ranges.is_empty() {
                    true => order.leave("no whole page of it lies in one piece"),
                    false => order.items.push(item),
                }
            }
        }
    }
    match all {
        true => judge(order, machine),
        false => settle(order, machine),
    }
    Ok(volume)
}

/// What was seen of a file.
struct Surveyed {
    extents: Vec<Extent>,
    executed: bool,
    runs: bool,
}

fn is_for(looked: &Surveyed, which: Which<'_>) -> bool {
    match which {
        Which::Others => true,
        Which::Programs(areas) => looked.executed && inside(areas, &looked.extents).is_empty(),
    }
}

/// Opens a file for reading, if it still is what the order was made of.
pub(crate) fn open(item: &Item, mounts: &MountTable) -> Result<Opened, String> {
    open_checked(mounts, item.facts.path.as_path(), &expect(item)).map_err(|skip| skip.to_string())
}

/// Looks at a file; or says why it stays.
fn survey_file(item: &Item, mounts: &MountTable, volume: &Volume) -> Result<Surveyed, String> {
    let opened = open(item, mounts)?;
    let executed = may_be_executed(item.facts.path.as_path(), opened.stat.mode);
    let file = File::from(opened.fd);
    let look = || -> io::Result<_> {
        Ok(match volume.why_immovable(item.facts.path.as_path(), &file)? {
            Some(why) => Err(why.to_owned()),
            None => Ok(Surveyed {
                extents: headstart_system::extents::extents(&file)?,
                executed,
                runs: executed && runs(&file)?,
            }),
        })
    };
    look().map_err(|error| error.to_string())?
}

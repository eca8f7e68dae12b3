//! Moving the files of one file system: what can be moved is looked for anew, room for all is taken, and what
//! that brings is judged by where it lies. Then the files move into it ([`crate::work`]).

use crate::evict::{in_the_way, still_placed};
use crate::moving::volume::{Volume, unserved};
use crate::order::{FreeRoom, Order, judge};
use crate::pace::{Halt, Pace};
use crate::placed_files::{is_in, placed};
use crate::predict::{Prediction, prediction, price, unless_worthwhile};
use crate::results::{LayoutResult, Turn};
use crate::room::{Free, Room, extents, probe};
use crate::survey::{Which, survey};
use crate::work::Work;
use anyhow::{Result, bail};
use headstart_model::PageSet;
use headstart_model::human;
use headstart_model::machine::{Device, DeviceClass, Machine};
use headstart_start::now_unix_ns;
use headstart_store::Store;
use headstart_system::device::DeviceFacts;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// This share of a file system stays free: others write, too.
const STAYS_FREE: u64 = 20;
/// Good enough is room from which reading takes at most so many times as long as from room in one piece.
const GOOD: f64 = 1.05;
/// Where there is none, it is tried what half of it brings, and so often half of that.
const HALVES: u32 = 6;
/// So much is written and given back before room is taken, and before the first file moves a quarter of what
/// is to be moved, between these: what the file system notes of itself needs room below, too.
const LEAST_PROBE: u64 = 4 << 20;
const MOST_PROBE: u64 = 32 << 20;
/// Flash wears by what is written: its files are moved no more often than once in this time.
const FLASH_RESTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How it is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// What lies in order is moved anew, too, also where it is not worth it by the cost model, and where
    /// flash was written of late.
    pub force: bool,
    /// The most bytes that are moved in a second; `None` for as many as the device gives to the least
    /// important reader.
    pub rate: Option<u64>,
    /// What may be executed and was not placed before is moved, and nothing else: nothing runs any more.
    pub at_shutdown: bool,
    /// When it ends at the latest; `None` for as long as it takes.
    pub until: Option<Instant>,
}

/// What stays the same while the files of one file system move.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub machine: &'a Machine,
    pub device: &'a Device,
    pub store: &'a Store,
    pub turn: &'a Turn,
    /// Whether it is for all keys.
    pub all_keys: bool,
    pub bounds: Bounds,
}

impl Task<'_> {
    /// Declines what is not worth it, or cannot be.
    fn unless_declined(&self, order: &Order) -> Result<(), Halt> {
        let why = order.declined.clone();
        let why = why.filter(|_| !self.bounds.force || unserved(&self.device.fstype).is_some());
        why.map_or(Ok(()), |why| Err(Halt::Declined(why)))
    }
}

/// Moves the files of an order; the last of `results` is its.
pub(crate) fn apply_one(
    order: &mut Order,
    task: Task<'_>,
    results: &mut [LayoutResult],
    pace: &mut Pace<'_>,
    tell: &mut dyn FnMut(&LayoutResult),
) -> Result<(), Halt> {
    let Task {
        machine,
        device,
        store,
        turn,
        all_keys,
        bounds,
    } = task;
    // Where all is not worth it, a part of it is not either.
    task.unless_declined(order)?;
    let last = results.last().map_or(0, |kept| kept.moved_unix_ns);
    // Programs belong to the time that they were left at.
    let rests = rests(device, last, now_unix_ns());
    if let Some(why) = rests.filter(|_| !bounds.force && !bounds.at_shutdown) {
        return Err(Halt::Declined(why));
    }
    let page = u64::from(machine.page_size);
    let mounts = MountTable::read()?;
    let before = placed(store, &device.mount_point.to_string());
    let areas = before.areas();
    let volume = surveyed(order, task, &mounts, &areas, pace)?;
    let mount = mounts.lookup(device.mount_point.as_path().as_os_str().as_encoded_bytes());
    pace.device = mount.and_then(DeviceFacts::of_mount);
    let free = room(&volume)?;
    fit(order, task, results, free)?;
    if let Some(halt) = pace.halt() {
        return Err(halt);
    }
    let spare = (order.bytes() / 4)
        .clamp(LEAST_PROBE, MOST_PROBE)
        .min(free.stays / 2)
        / page
        * page;
    enough_below(&volume, order.bytes() + spare)?;
    probe(&volume, spare.min(LEAST_PROBE))?;
    let room = take_room(order, task, results, &volume, free)?;
    if let Some(kept) = results.last_mut() {
        let price = price(order.bytes(), &order.before, device, bounds.rate);
        (kept.writes_bytes, kept.takes_ns) = (price.writes_bytes, price.takes_ns);
        tell(kept);
    }
    let ready = prepare(&room, spare, &volume, results, pace, tell);
    if let Err(halt) = ready {
        room.undo(&volume);
        return Err(halt);
    }
    if let Some(kept) = results.last_mut() {
        kept.to = room.pieces.first().map(|piece| piece.physical);
        kept.pieces = room.pieces.len() as u64;
        kept.moved_unix_ns = now_unix_ns();
    }
    turn.keep(results)?;
    // Who moves the files of some keys alone does not know what the others want.
    let (out, mut stays) = match bounds.at_shutdown || !all_keys {
        true => (Order::new(order.device, Vec::new()), before.stay(order)),
        false => in_the_way(&before, order, &volume, &mounts, page),
    };
    // Before the first is moved: also what a kill leaves half-way is known then.
    before.followed(order, &room, before.stay(order)).keep(store)?;
    let mut work = Work {
        turn,
        all: &mut *results,
        order,
        mounts: &mounts,
        volume: &volume,
        room: &room,
        pace,
        tell,
        evicts: false,
        asked: 0,
    };
    let mut done = work.run();
    if done.is_ok() && !out.items.is_empty() {
        let fits =
            volume.free()? / 2 > out.bytes() + free.stays && enough_below(&volume, out.bytes()).is_ok();
        // The room that was moved to is taken still, and so what was there before: none of it is found anew.
        let taboo = |start, length| is_in(&areas, start, length);
        let elsewhere = fits.then(|| Room::elsewhere(&volume, out.bytes(), page, &taboo));
        match elsewhere {
            Some(Ok(elsewhere)) => {
                done = evict(&mut work, &out, elsewhere);
                stays.extend(still_placed(&out, &before, &mounts));
            }
            _ => stays = before.stay(order),
        }
    }
    if done.is_ok() {
        before.followed(order, &room, stays).keep(store)?;
    }
    // A shutdown does not wait to be told what it brought, nor who has asked it to end; and what failed is
    // told, whatever that brought.
    if matches!(done, Ok(()) | Err(Halt::Failed(_))) {
        if let (Ok(after), Some(kept)) = (measure(order, device, &mounts), results.last_mut()) {
            kept.after = after;
        }
    }
    // Who waits for a shutdown does not wait for this.
    if !bounds.at_shutdown || done.is_err() {
        room.end(&volume);
    }
    done
}

/// Looks anew for what of an order can be moved; the volume that it is on.
fn surveyed(
    order: &mut Order,
    task: Task<'_>,
    mounts: &MountTable,
    areas: &PageSet,
    pace: &Pace<'_>,
) -> Result<Volume, Halt> {
    let which = match task.bounds.at_shutdown {
        true => Which::Programs(areas),
        false => Which::Others,
    };
    let mut halted = None;
    let mut ends = || {
        halted = pace.halt();
        halted.is_some()
    };
    let surveyed = survey(order, task.machine, mounts, which, task.bounds.force, &mut ends);
    match halted {
        Some(halt) => Err(halt),
        None => surveyed.map_err(Halt::Declined),
    }
}

/// Leaves out of an order what the free room is too small for; declines what is nothing then, or not worth
/// it.
fn fit(order: &mut Order, task: Task<'_>, results: &mut [LayoutResult], room: FreeRoom) -> Result<(), Halt> {
    let (wanted, most) = (order.bytes(), room.free.saturating_sub(room.stays));
    if wanted > most {
        // Some of what is free is in pieces of no use.
        order.fit(most / 4 * 3, task.device.cost.bridge());
        judge(order, task.machine);
    }
    note(results, order);
    if wanted == 0 {
        return Err(Halt::Declined(nothing(order)));
    }
    if order.bytes() == 0 {
        return Err(Halt::Declined(format!(
            "{} are to be moved, and of {} that are free {} stay so",
            human::bytes(wanted),
            human::bytes(room.free),
            human::bytes(room.stays)
        )));
    }
    task.unless_declined(order)
}

/// Takes the room for an order, or declines what is not worth it in the room that there is.
fn take_room(
    order: &mut Order,
    task: Task<'_>,
    results: &mut [LayoutResult],
    volume: &Volume,
    free: FreeRoom,
) -> Result<Room, Halt> {
    let most = free.free.saturating_sub(free.stays);
    let room = match room_for(order, volume, most, task.machine, task.device) {
        Ok(Some(room)) => room,
        Ok(None) => {
            return Err(Halt::Declined(format!(
                "{} are to be moved, and of the free room too little is in pieces of a page or more",
                human::bytes(order.bytes())
            )));
        }
        Err(error) => return Err(error.context("cannot take room on the file system").into()),
    };
    note(results, order);
    let predicted = order.predict(&room.extents(), &task.device.cost);
    match unless_worthwhile(&order.before, &predicted).filter(|_| !task.bounds.force) {
        Some(why) => Err(Halt::Declined(format!(
            "the best free room is in {} pieces: {why}",
            room.pieces.len()
        ))),
        None => Ok(room),
    }
}

/// Moves what no start wants any more out of the way, `elsewhere`.
fn evict(work: &mut Work<'_, '_>, out: &Order, elsewhere: Room) -> Result<(), Halt> {
    let volume = work.volume;
    let mut done = elsewhere.write(volume, &mut |bytes| {
        work.pace.make_way(bytes, work.pace.is_to_look())
    });
    let ready = done.is_ok();
    if ready {
        let mut eviction = Work {
            turn: work.turn,
            all: &mut *work.all,
            order: out,
            mounts: work.mounts,
            volume,
            room: &elsewhere,
            pace: &mut *work.pace,
            tell: &mut *work.tell,
            evicts: true,
            asked: 0,
        };
        done = eviction.run();
    }
    match ready {
        true => elsewhere.end(volume),
        false => elsewhere.undo(volume),
    }
    done
}

/// Whether what the volume lies on is known to have less room than this.
fn enough_below(volume: &Volume, bytes: u64) -> Result<()> {
    let free = volume.free_below().filter(|free| *free < bytes);
    free.map_or(Ok(()), |free| {
        bail!(
            "{} of room are to be written, and what it lies on may give {}",
            human::bytes(bytes),
            human::bytes(free)
        )
    })
}

/// Has the room written, and then `spare` bytes that are given back: nothing is at stake until then. So no
/// move can be what fills a volume that has less room below than its file system says.
fn prepare(
    room: &Room,
    spare: u64,
    volume: &Volume,
    results: &mut [LayoutResult],
    pace: &mut Pace<'_>,
    tell: &mut dyn FnMut(&LayoutResult),
) -> Result<(), Halt> {
    // That it was taken, it does not note while there is no more room.
    volume.settle()?;
    room.write(volume, &mut |bytes| {
        if let Some(kept) = results.last_mut() {
            kept.room_bytes += bytes;
            tell(kept);
        }
        pace.make_way(bytes, pace.is_to_look())
    })?;
    probe(volume, spare)
}

/// Takes room for an order, and leaves of that what would make reading take longer: the more is moved, the
/// smaller are the pieces of room that are left for it. `None` where what is free is in pieces of no use.
fn room_for(
    order: &mut Order,
    volume: &Volume,
    most: u64,
    machine: &Machine,
    device: &Device,
) -> Result<Option<Room>> {
    let (page, cost) = (u64::from(machine.page_size), &device.cost);
    let best = |free: &Free, order: &Order| {
        let time = |room: &[_]| order.predict(room, cost).time_ns;
        let pieces = free.best(order.bytes(), page, &time);
        let takes = (!pieces.is_empty()).then(|| time(&extents(&pieces)));
        (pieces, takes)
    };
    let good = GOOD * order.after.time_ns as f64;
    let is_good = |free: &Free| best(free, order).1.is_some_and(|takes| takes as f64 <= good);
    let free = match Free::take(volume, order.bytes(), most, page, &is_good) {
        // Others have taken it.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(None),
        taken => taken?,
    };
    let (mut pieces, mut takes) = best(&free, order);
    let mut chosen = None;
    if takes.is_none_or(|takes| takes as f64 > good) {
        for halves in 1..=HALVES {
            let mut part = order.clone();
            part.fit(order.bytes() >> halves, cost.bridge());
            if part.items.is_empty() {
                break;
            }
            let (its, part_takes) = best(&free, &part);
            if part_takes.is_some() && takes.is_none_or(|takes| part_takes < Some(takes)) {
                (pieces, takes) = (its, part_takes);
                chosen = Some(part);
            }
        }
    }
    if pieces.is_empty() {
        return Ok(None);
    }
    if let Some(part) = chosen {
        *order = part;
        judge(order, machine);
    }
    Ok(Some(free.keep(volume, pieces)?))
}

/// Notes what an order is about to move.
fn note(results: &mut [LayoutResult], order: &Order) {
    if let Some(kept) = results.last_mut() {
        kept.left = order.left.clone();
        (kept.before, kept.after) = (order.before, order.before);
        (kept.planned_bytes, kept.settled) = (order.bytes(), order.settled.len() as u64);
        kept.from = extent_of(order);
    }
}

/// Why there is nothing to move.
fn nothing(order: &Order) -> String {
    match order.settled.is_empty() {
        true => "there is nothing to move".into(),
        false => format!("all {} files lie in that order already", order.settled.len()),
    }
}

/// What is free of a file system, and stays so.
pub(crate) fn room(volume: &Volume) -> Result<FreeRoom> {
    Ok(FreeRoom {
        free: volume.free()?,
        stays: volume.size()? / STAYS_FREE,
    })
}

/// Why flash is not written again by now.
pub(crate) fn rests(device: &Device, moved_unix_ns: u64, now_unix_ns: u64) -> Option<String> {
    let since = Duration::from_nanos(now_unix_ns.saturating_sub(moved_unix_ns));
    // A clock that was set back says nothing of when it was.
    let known = moved_unix_ns != 0 && moved_unix_ns <= now_unix_ns;
    (device.cost.class == DeviceClass::Flash && known && since < FLASH_RESTS).then(|| {
        format!(
            "flash wears by writing, and was written {}: its files are moved once in 30 days",
            human::ago(moved_unix_ns, now_unix_ns)
        )
    })
}

/// Between which bytes of the device what is moved lies.
fn extent_of(order: &Order) -> Option<[u64; 2]> {
    let extents = || order.items.iter().flat_map(|item| &item.facts.extents);
    let first = extents().map(|extent| extent.physical).min()?;
    let last = extents().map(|extent| extent.physical + extent.length).max()?;
    Some([first, last])
}

/// What reading takes now.
fn measure(order: &Order, device: &Device, mounts: &MountTable) -> Result<Prediction> {
    let mut placed = Vec::new();
    for item in order.all() {
        let expect = Expect {
            inode: Some(item.facts.inode),
            ..Expect::default()
        };
        let Ok(opened) = open_checked(mounts, item.facts.path.as_path(), &expect) else {
            continue;
        };
        let mut item = item.clone();
        item.facts.extents = headstart_system::extents::extents(opened.fd.as_fd())?;
        placed.extend(item.device_ranges());
    }
    Ok(prediction(&placed.into_iter().collect(), &device.cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    #[test]
    fn flash_is_written_once_a_month_and_a_disk_whenever_it_is_worth_it() {
        const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
        let device_of = |class| machine(vec![], class, "ext4").devices.remove(0);
        let rests = |class, moved, now| rests(&device_of(class), moved, now).is_some();
        assert!(rests(DeviceClass::Flash, 100 * DAY, 129 * DAY));
        assert!(!rests(DeviceClass::Flash, 100 * DAY, 131 * DAY));
        assert!(!rests(DeviceClass::Flash, 0, DAY), "it never was");
        assert!(
            !rests(DeviceClass::Flash, 100 * DAY, 99 * DAY),
            "the clock was set back"
        );
        assert!(!rests(DeviceClass::Disk, 100 * DAY, 101 * DAY));
        assert!(!rests(DeviceClass::Network, 100 * DAY, 101 * DAY));
    }
}

//! Moving the files of orders, one file system after the other, and keeping what it came to.
//!
//! Of each file system what can be moved is looked for anew, room for all is taken, and what that brings is
//! judged by where it lies. Then the files move into it ([`crate::work`]).

use crate::evict::{in_the_way, still_placed};
use crate::moving::volume::{Volume, unserved};
use crate::order::{FreeRoom, Order, judge};
use crate::pace::{Halt, Pace};
use crate::placed_files::{is_in, placed};
use crate::predict::{Prediction, prediction, price, unless_worthwhile};
use crate::results::{LayoutResult, State, Turn};
use crate::room::{Free, Room, extents, probe};
use crate::survey::{Which, survey};
use crate::work::Work;
use anyhow::{Context, Result, bail};
use headstart_model::human;
use headstart_model::machine::{Device, DeviceClass, Machine};
use headstart_start::now_unix_ns;
use headstart_store::{KeyDir, Store};
use headstart_system::device::DeviceFacts;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use headstart_system::priority::{Priority, stand_back};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
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
/// So many keys are named in what is kept.
const NAMED: usize = 20;
/// Flash wears by what is written: its files are moved no more often than once in this time.
const FLASH_RESTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Whether a signal asked to end it.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

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

/// Does what `orders` say, one file system after the other, and keeps what it came to. SIGINT and SIGTERM end
/// it between two extents; `tell` hears how far it is. What is left undone is in the result; an error is of
/// what concerns all of it.
pub fn apply(
    orders: Vec<Order>,
    machine: &Machine,
    keys: &[KeyDir],
    store: &Store,
    bounds: Bounds,
    tell: &mut dyn FnMut(&LayoutResult),
) -> Result<Vec<LayoutResult>> {
    match ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)) {
        // It is ours: a process moves files one time after the other.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
        Err(error) => return Err(error).context("cannot watch for signals"),
    }
    let turn = Turn::acquire(store)?;
    let mut names: Vec<String> = keys.iter().take(NAMED).map(|key| key.key().to_string()).collect();
    if keys.len() > NAMED {
        names.push(format!("and {} more", keys.len() - NAMED));
    }
    // At a shutdown all others are gone, and who waits is its user.
    if !bounds.at_shutdown {
        // Where it is refused the work is done all the same.
        stand_back(Priority::Idle, 19);
    }
    let mut pace = Pace::new(&STOP, bounds.rate, bounds.until);
    let all_keys = keys.len() >= store.keys()?.len();
    let mut results = Vec::new();
    for mut order in orders {
        let Some(device) = machine.devices.get(order.device as usize) else {
            continue;
        };
        let mount_point = device.mount_point.to_string();
        results.push(LayoutResult {
            keys: names.clone(),
            at_shutdown: bounds.at_shutdown,
            state: State::Underway,
            why: None,
            began_unix_ns: now_unix_ns(),
            ended_unix_ns: 0,
            files: 0,
            bytes: 0,
            planned_bytes: order.bytes(),
            room_bytes: 0,
            writes_bytes: 0,
            takes_ns: 0,
            from: None,
            to: None,
            pieces: 0,
            settled: 0,
            evicted: 0,
            moved_unix_ns: turn.moved_unix_ns(&mount_point),
            before: order.before,
            after: order.before,
            left: order.left.clone(),
            mount_point,
        });
        let task = Task {
            machine,
            device,
            store,
            turn: &turn,
            all_keys,
            bounds,
        };
        let ended = apply_one(&mut order, task, &mut results, &mut pace, tell);
        let (state, why) = match ended {
            Ok(None) => (State::Complete, None),
            Ok(Some(why)) => (State::Declined, Some(why)),
            Err(Halt::Asked) => (State::Stopped, None),
            Err(Halt::NoMemory) => (State::Stopped, Some("memory is short".into())),
            Err(Halt::Pressed) => (
                State::Stopped,
                Some("others waited for the device or for memory all the time".into()),
            ),
            Err(Halt::NoTime) => (State::Stopped, Some("a shutdown waits no longer".into())),
            Err(Halt::Failed(error)) => (State::Failed, Some(format!("{error:#}"))),
        };
        if let Some(kept) = results.last_mut() {
            (kept.state, kept.why, kept.ended_unix_ns) = (state, why, now_unix_ns());
        }
        if let Err(error) = turn.keep(&results) {
            let failed = results.iter().filter(|kept| kept.state == State::Failed);
            let why: Vec<&str> = failed.filter_map(|kept| kept.why.as_deref()).collect();
            return Err(match why.is_empty() {
                true => error,
                false => error.context(why.join("; ")),
            });
        }
    }
    Ok(results)
}

/// What stays the same while the files of one file system move.
#[derive(Clone, Copy)]
struct Task<'a> {
    machine: &'a Machine,
    device: &'a Device,
    store: &'a Store,
    turn: &'a Turn,
    /// Whether it is for all keys.
    all_keys: bool,
    bounds: Bounds,
}

/// One file system; `Some`: why nothing was moved.
fn apply_one(
    order: &mut Order,
    task: Task<'_>,
    all: &mut [LayoutResult],
    pace: &mut Pace<'_>,
    tell: &mut dyn FnMut(&LayoutResult),
) -> Result<Option<String>, Halt> {
    let Task {
        machine,
        device,
        store,
        turn,
        all_keys,
        bounds,
    } = task;
    let declined = |order: &Order| {
        let why = order.declined.clone();
        why.filter(|_| !bounds.force || unserved(&device.fstype).is_some())
    };
    // Where all is not worth it, a part of it is not either.
    if let Some(why) = declined(order) {
        return Ok(Some(why));
    }
    let last = all.last().map_or(0, |kept| kept.moved_unix_ns);
    // Programs belong to the time that they were left at.
    let rests = rests(device, last, now_unix_ns());
    if let Some(why) = rests.filter(|_| !bounds.force && !bounds.at_shutdown) {
        return Ok(Some(why));
    }
    let page = u64::from(machine.page_size);
    let mounts = MountTable::read()?;
    let before = placed(store, &device.mount_point.to_string());
    let areas = before.areas();
    let which = match bounds.at_shutdown {
        true => Which::Programs(&areas),
        false => Which::Others,
    };
    let mut halted = None;
    let mut ends = || {
        halted = pace.halt();
        halted.is_some()
    };
    let surveyed = survey(order, machine, &mounts, which, bounds.force, &mut ends);
    if let Some(halt) = halted {
        return Err(halt);
    }
    let volume = match surveyed {
        Ok(volume) => volume,
        Err(why) => return Ok(Some(why)),
    };
    let mount = mounts.lookup(device.mount_point.as_path().as_os_str().as_encoded_bytes());
    pace.device = mount.and_then(DeviceFacts::of_mount);
    let wanted = order.bytes();
    let FreeRoom { free, stays: reserve } = room(&volume)?;
    let most = free.saturating_sub(reserve);
    if wanted > most {
        // Some of what is free is in pieces of no use.
        order.fit(most / 4 * 3, device.cost.bridge());
        judge(order, machine);
    }
    note(all, order);
    if wanted == 0 {
        return Ok(Some(nothing(order)));
    }
    if order.bytes() == 0 {
        return Ok(Some(format!(
            "{} are to be moved, and of {} that are free {} stay so",
            human::bytes(wanted),
            human::bytes(free),
            human::bytes(reserve)
        )));
    }
    if let Some(why) = declined(order) {
        return Ok(Some(why));
    }
    if let Some(halt) = pace.halt() {
        return Err(halt);
    }
    let spare = (order.bytes() / 4)
        .clamp(LEAST_PROBE, MOST_PROBE)
        .min(reserve / 2)
        / page
        * page;
    enough_below(&volume, order.bytes() + spare)?;
    probe(&volume, spare.min(LEAST_PROBE))?;
    let room = match room_for(order, &volume, most, machine, device) {
        Ok(Some(room)) => room,
        Ok(None) => {
            return Ok(Some(format!(
                "{} are to be moved, and of the free room too little is in pieces of a page or more",
                human::bytes(order.bytes())
            )));
        }
        Err(error) => return Err(error.context("cannot take room on the file system").into()),
    };
    note(all, order);
    let predicted = order.predict(&room.extents(), &device.cost);
    if let Some(why) = unless_worthwhile(&order.before, &predicted).filter(|_| !bounds.force) {
        return Ok(Some(format!(
            "the best free room is in {} pieces: {why}",
            room.pieces.len()
        )));
    }
    if let Some(kept) = all.last_mut() {
        let price = price(order.bytes(), &order.before, device, bounds.rate);
        (kept.writes_bytes, kept.takes_ns) = (price.writes_bytes, price.takes_ns);
        tell(kept);
    }
    let ready = prepare(&room, spare, &volume, all, pace, tell);
    if let Err(halt) = ready {
        room.undo(&volume);
        return Err(halt);
    }
    if let Some(kept) = all.last_mut() {
        kept.to = room.pieces.first().map(|piece| piece.physical);
        kept.pieces = room.pieces.len() as u64;
        kept.moved_unix_ns = now_unix_ns();
    }
    turn.keep(all)?;
    // Who moves the files of some keys alone does not know what the others want.
    let (out, mut stays) = match bounds.at_shutdown || !all_keys {
        true => (Order::new(order.device, Vec::new()), before.stay(order)),
        false => in_the_way(&before, order, &volume, &mounts, page),
    };
    // Before the first is moved: also what a kill leaves half-way is known then.
    before.followed(order, &room, before.stay(order)).keep(store)?;
    let mut work = Work {
        turn,
        all: &mut *all,
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
        // The room that was moved to is taken still, and so what was there before: none of it is found anew.
        let taboo = |start, length| is_in(&areas, start, length);
        let fits = volume.free()? / 2 > out.bytes() + reserve && enough_below(&volume, out.bytes()).is_ok();
        let elsewhere = fits.then(|| Room::elsewhere(&volume, out.bytes(), page, &taboo));
        match elsewhere {
            Some(Ok(elsewhere)) => {
                done = elsewhere.write(&volume, &mut |bytes| {
                    work.pace.make_way(bytes, work.pace.is_to_look())
                });
                let ready = done.is_ok();
                if ready {
                    (work.order, work.asked) = (&out, 0);
                    (work.room, work.evicts) = (&elsewhere, true);
                    done = work.run();
                }
                match ready {
                    true => elsewhere.end(&volume),
                    false => elsewhere.undo(&volume),
                }
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
        if let (Ok(after), Some(kept)) = (measure(order, device, &mounts), all.last_mut()) {
            kept.after = after;
        }
    }
    // Who waits for a shutdown does not wait for this.
    if !bounds.at_shutdown || done.is_err() {
        room.end(&volume);
    }
    done.map(|()| None)
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
    all: &mut [LayoutResult],
    pace: &mut Pace<'_>,
    tell: &mut dyn FnMut(&LayoutResult),
) -> Result<(), Halt> {
    // That it was taken, it does not note while there is no more room.
    volume.settle()?;
    room.write(volume, &mut |bytes| {
        if let Some(kept) = all.last_mut() {
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

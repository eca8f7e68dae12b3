//! Moving the files of orders, one file system after the other, and keeping what it came to.

use crate::one_file_system::{Bounds, Task, apply_one};
use crate::order::Order;
use crate::pace::{Halt, Pace};
use crate::results::{LayoutResult, State, Turn};
use anyhow::{Context, Result};
use headstart_model::machine::{Device, Machine};
use headstart_start::now_unix_ns;
use headstart_store::{KeyDir, Store};
use headstart_system::priority::{Priority, stand_back};
use std::sync::atomic::{AtomicBool, Ordering};

/// So many keys are named in what is kept.
const NAMED: usize = 20;
/// Whether a signal asked to end it.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

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
        results.push(begun(&order, device, &names, bounds, &turn));
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
            Ok(()) => (State::Complete, None),
            Err(Halt::Declined(why)) => (State::Declined, Some(why)),
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

/// What is told of an order whose files are about to move.
fn begun(order: &Order, device: &Device, names: &[String], bounds: Bounds, turn: &Turn) -> LayoutResult {
    let mount_point = device.mount_point.to_string();
    LayoutResult {
        keys: names.to_vec(),
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
    }
}

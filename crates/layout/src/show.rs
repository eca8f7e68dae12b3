//! What is told of an order and of what was done, as text.

use crate::order::Order;
use crate::predict::{Prediction, on_device, price};
use crate::results::{LayoutResult, State};
use headstart_model::human::{ago, bytes, duration, printable};
use headstart_model::machine::Machine;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What would be moved.
pub fn order_text(orders: &[Order], machine: &Machine) -> String {
    let mut text = String::new();
    for order in orders {
        let device = machine.devices.get(order.device as usize);
        let at = device.map_or_else(String::new, |device| device.mount_point.to_string());
        let _ = writeln!(
            text,
            "{}: {} of {} files to be moved, in the order of their first use",
            printable(&at),
            bytes(order.bytes()),
            order.items.len()
        );
        let _ = writeln!(text, "  reading them now  {}", predicted(&order.before));
        let _ = writeln!(text, "  in that order     {}", predicted(&order.after));
        settled(&mut text, order.settled.len() as u64);
        write_left(&mut text, &order.left);
        if let Some(room) = order.room {
            let _ = writeln!(
                text,
                "  room for them     {} are free, and {} stay so{}",
                bytes(room.free),
                bytes(room.stays),
                match room.free.saturating_sub(room.stays) < order.bytes() {
                    true => ": what saves the most jumps is moved",
                    false => "",
                }
            );
        }
        let _ = match &order.declined {
            Some(why) => writeln!(text, "  nothing is moved: {why}"),
            None => {
                let costs = device.map(|device| price(order.bytes(), &order.before, device, None));
                let costs = costs.map_or_else(String::new, |price| {
                    let (writes, takes) = (bytes(price.writes_bytes), duration(price.takes_ns));
                    format!(", which writes {writes} and takes about {takes}")
                });
                writeln!(
                    text,
                    "  it is worth it: `headstart layout apply` moves them{costs}"
                )
            }
        };
    }
    if orders.is_empty() {
        text.push_str("no data that is known lies on a local device\n");
    }
    text
}

/// The files in the order they would have, and where they lie now.
pub fn items_text(orders: &[Order], machine: &Machine) -> String {
    let mut text = String::new();
    for order in orders {
        let at = machine.devices.get(order.device as usize);
        let at = at.map_or_else(String::new, |device| device.mount_point.to_string());
        let _ = writeln!(text, "{}:\n     BYTE     SIZE PIECES  FILE", printable(&at));
        for item in &order.items {
            let from = item.needed.ranges().first().map_or(0, |range| range.start);
            let pieces: Vec<_> = item
                .needed
                .ranges()
                .iter()
                .flat_map(|range| on_device(&item.facts.extents, range.start, range.pages()))
                .collect();
            let first = on_device(&item.facts.extents, from, 1);
            let _ = writeln!(
                text,
                "{:>9} {:>8} {:>6}  {}",
                first.first().map_or_else(String::new, |range| bytes(range.start)),
                bytes(item.bytes()),
                pieces.len(),
                printable(&item.facts.path.to_string())
            );
        }
    }
    text
}

/// How far it is, in a line; before the first byte is written, how much that will be and how long it takes.
pub fn underway(kept: &LayoutResult) -> String {
    if kept.bytes == 0 && kept.room_bytes == 0 && kept.files == 0 {
        return format!(
            "{}: {} to be moved: {} are written, about {}",
            printable(&kept.mount_point),
            bytes(kept.planned_bytes),
            bytes(kept.writes_bytes),
            duration(kept.takes_ns)
        );
    }
    if kept.bytes == 0 && kept.room_bytes > 0 {
        return format!(
            "{}: room for {} of {} is written",
            printable(&kept.mount_point),
            bytes(kept.room_bytes),
            bytes(kept.planned_bytes)
        );
    }
    format!(
        "{}: {} of {} moved, {} files",
        printable(&kept.mount_point),
        bytes(kept.bytes),
        bytes(kept.planned_bytes),
        kept.files
    )
}

/// What was done.
pub fn kept_text(results: &[LayoutResult], now_unix_ns: u64) -> String {
    let mut text = String::new();
    for result in results {
        let state = match result.state {
            State::Underway => "files are being moved",
            State::Complete => "complete",
            State::Declined => "nothing was moved",
            State::Stopped => "stopped when asked to",
            State::Interrupted => "interrupted; every file is whole",
            State::Failed => "failed",
        };
        let why = result
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {}", printable(why)));
        let what = if result.at_shutdown {
            ", programs at the shutdown"
        } else {
            ""
        };
        let _ = writeln!(text, "{}{what}: {state}{why}", printable(&result.mount_point));
        let took = result.ended_unix_ns.saturating_sub(result.began_unix_ns);
        let took = match result.ended_unix_ns {
            0 => String::new(),
            _ => format!(", in {}", duration(took)),
        };
        let _ = writeln!(
            text,
            "  {}{took}, for {}",
            ago(result.began_unix_ns, now_unix_ns),
            printable(&result.keys.join(", "))
        );
        if result.files > 0 {
            let _ = writeln!(
                text,
                "  moved {} of {} in {} files, from {} to {} of the device, in {} piece{}",
                bytes(result.bytes),
                bytes(result.planned_bytes),
                result.files,
                result.from.map_or_else(String::new, |[first, last]| format!(
                    "{}…{}",
                    bytes(first),
                    bytes(last)
                )),
                bytes(result.to.unwrap_or(0)),
                result.pieces,
                if result.pieces == 1 { "" } else { "s" },
            );
        }
        if result.room_bytes > 0 {
            let _ = writeln!(
                text,
                "  wrote {}, of them {} to have room that cannot be missing below",
                bytes(result.room_bytes.saturating_add(result.bytes)),
                bytes(result.room_bytes)
            );
        }
        let _ = writeln!(text, "  reading before    {}", predicted(&result.before));
        let _ = writeln!(text, "  reading after     {}", predicted(&result.after));
        settled(&mut text, result.settled);
        if result.evicted > 0 {
            let _ = writeln!(
                text,
                "  {} files that no start needs any more were moved out of the way",
                result.evicted
            );
        }
        write_left(&mut text, &result.left);
    }
    if results.is_empty() {
        text.push_str("no file was ever moved\n");
    }
    text
}

/// What failed, in a line.
pub fn failed_text(kept: &LayoutResult) -> String {
    let moved = match kept.files {
        0 => "nothing was moved".to_owned(),
        files => format!("{files} files were moved before"),
    };
    format!(
        "{}: {}; {moved}",
        kept.mount_point,
        kept.why.as_deref().unwrap_or("it failed")
    )
}

fn predicted(prediction: &Prediction) -> String {
    let Prediction { jumps, time_ns } = prediction;
    let plural = if *jumps == 1 { "" } else { "s" };
    format!("{} with {jumps} jump{plural} of the head", duration(*time_ns))
}

fn settled(text: &mut String, files: u64) {
    if files > 0 {
        let _ = writeln!(text, "  {files} files lie in that order already, and stay");
    }
}

fn write_left(text: &mut String, left: &BTreeMap<String, u64>) {
    for (why, files) in left {
        let _ = writeln!(text, "  {files} stay where they are: {}", printable(why));
    }
}

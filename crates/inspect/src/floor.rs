//! The floor of a start, as text and as the document of `headstart floor --json`.

use crate::human::{bytes, duration, percent};
use crate::table::{Table, facts, section};
use headstart_model::floor::{Above, Floor, Need};
use headstart_model::machine::{Cost, Device};
use serde::Serialize;

/// The document.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// The trace or the key that was asked for.
    pub start: String,
    /// The floor.
    pub floor: Floor,
    /// Where the time above it went; `None` for a start without a replay.
    pub above: Option<Above>,
    /// What was reckoned with.
    pub devices: Vec<ShownDevice>,
    /// What is used when, and where it lies; only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<Need>>,
}

/// A device that the start used.
#[derive(Debug, Serialize)]
pub struct ShownDevice {
    /// Where its file system is mounted.
    pub mount_point: String,
    /// What it costs to read.
    pub cost: Cost,
}

impl From<&Device> for ShownDevice {
    fn from(device: &Device) -> ShownDevice {
        ShownDevice {
            mount_point: device.mount_point.to_string(),
            cost: device.cost,
        }
    }
}

/// For people.
pub fn text(shown: &Shown) -> String {
    let floor = &shown.floor;
    let mut out = facts([
        ("floor", duration(floor.floor_ns)),
        (
            "made of",
            match floor.read_ns {
                0 => "what it computes: all can be read in time".into(),
                read_ns => format!(
                    "{} to read what the first {} use, and {} after that",
                    duration(read_ns),
                    duration(floor.moment_ns),
                    duration(floor.warm_ns.saturating_sub(floor.moment_ns))
                ),
            },
        ),
        (
            "warm",
            format!(
                "{}{}",
                duration(floor.warm_ns),
                match floor.waited {
                    true => ", less what the start recorded waited for its devices",
                    false => "",
                }
            ),
        ),
        (
            "all it reads",
            format!("{}, {} at best", bytes(floor.bytes), duration(floor.read_all_ns)),
        ),
    ]);
    if let Some(above) = &shown.above {
        out += &section(&heading(floor, above), &causes(above));
    }
    let mut devices = Table::new(&["mounted at", "class", ">MB/s", ">one read", ">at once"]);
    for device in &shown.devices {
        let Cost {
            class,
            bandwidth,
            latency,
            depth,
        } = device.cost;
        devices.row([
            device.mount_point.clone(),
            format!("{class:?}").to_lowercase(),
            format!("{:.0}", bandwidth / 1e6),
            duration((latency * 1e9) as u64),
            depth.to_string(),
        ]);
    }
    out + &section("Devices", &devices)
}

fn heading(floor: &Floor, above: &Above) -> String {
    let times = above.took_ns as f64 / floor.floor_ns.max(1) as f64;
    format!(
        "The last start with a replay took {}, {times:.2} times the floor. Above it went",
        duration(above.took_ns)
    )
}

fn causes(above: &Above) -> Table {
    let mut table = Table::new(&["", ">", ">"]);
    let total_ns: u64 = above.parts().iter().map(|(_, ns)| ns).sum();
    for (cause, ns) in above.parts() {
        table.row([cause.into(), duration(ns), percent(ns, total_ns)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::DISK;

    const MS: u64 = 1_000_000;

    fn shown(above: Option<Above>) -> Shown {
        Shown {
            start: "k".into(),
            floor: Floor {
                floor_ns: 1000 * MS,
                moment_ns: 300 * MS,
                read_ns: 900 * MS,
                read_all_ns: 950 * MS,
                warm_ns: 400 * MS,
                bytes: 50 << 20,
                waited: false,
            },
            above,
            devices: vec![ShownDevice {
                mount_point: "/".into(),
                cost: DISK,
            }],
            needs: None,
        }
    }

    #[test]
    fn a_floor_says_what_it_is_made_of() {
        let text = text(&shown(None));
        assert!(
            text.contains("900 ms to read what the first 300 ms use, and 100 ms after that"),
            "{text}"
        );
        assert!(!text.contains("Above it went"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn the_time_above_is_told_by_cause() {
        let above = Above {
            took_ns: 1500 * MS,
            own_ns: 100 * MS,
            order_ns: 250 * MS,
            over_read_ns: 50 * MS,
            reads_left_ns: 0,
            computing_ns: 100 * MS,
        };
        let text = text(&shown(Some(above)));
        assert!(text.contains("took 1.50 s, 1.50 times the floor"), "{text}");
        let order = text.lines().find(|line| line.starts_with("order")).unwrap();
        assert!(order.contains("250 ms") && order.contains("50.0 %"), "{order}");
    }
}

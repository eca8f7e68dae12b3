//! What a medium read before and after its files were put into another order.

use crate::human::{bytes, duration};
use crate::table::{COLUMNS, Table, Written, section, sentences};
use headstart_compare::{MediumReads, Orders, Worth};
use std::fmt;

/// For people.
pub fn text(orders: &Orders) -> impl fmt::Display {
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&section("What the medium read", &table(orders)))?;
        let pairs = verdicts(orders);
        write!(f, "\nDoes the order pay\n{}", sentences(COLUMNS, pairs))
    })
}

fn seconds(seconds: f64) -> String {
    duration((seconds * 1e9) as u64)
}

fn table(orders: &Orders) -> Table {
    let mut table = Table::new(&["", ">before", ">after"]);
    let mut row = |name: &str, cell: &dyn Fn(&MediumReads) -> String| {
        table.row([name.to_string(), cell(&orders.before), cell(&orders.after)]);
    };
    row("read", &|reads| bytes(reads.bytes));
    row("requests", &|reads| reads.requests.to_string());
    row("jumps", &|reads| reads.jumps.to_string());
    row("jumped over", &|reads| bytes(reads.travel));
    row("busy", &|reads| duration(reads.busy_ns));
    row("on a CD-ROM", &|reads| seconds(reads.optical_seconds));
    row("on a USB 2.0 stick", &|reads| seconds(reads.stick_seconds));
    table
}

fn verdicts(orders: &Orders) -> [(&'static str, String); 3] {
    let Orders { before, after } = orders;
    let of = |one: f64, two: f64| match Worth::of(one, two) {
        Worth::Pays => "it pays",
        Worth::Same => "it makes no difference",
        Worth::Costs => "it does not pay: leave the files as they were",
    };
    [
        (
            "as recorded",
            of(before.busy_ns as f64, after.busy_ns as f64).into(),
        ),
        (
            "CD-ROM",
            format!(
                "{}, by a model",
                of(before.optical_seconds, after.optical_seconds)
            ),
        ),
        (
            "USB stick",
            format!("{}, by a model", of(before.stick_seconds, after.stick_seconds)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_medium_has_a_verdict() {
        let before = MediumReads {
            requests: 4000,
            bytes: 16 << 20,
            busy_ns: 9_000_000_000,
            optical_seconds: 20.0,
            stick_seconds: 4.0,
            ..MediumReads::default()
        };
        let after = MediumReads {
            requests: 125,
            jumps: 124,
            busy_ns: 9_010_000_000,
            optical_seconds: 27.0,
            stick_seconds: 1.0,
            ..before
        };
        let text = text(&Orders { before, after }).to_string();
        for part in [
            "it makes no difference",
            "it does not pay: leave the files as they were, by a model",
            "it pays, by a model",
            "16.0 MiB",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }
}

//! Values of options that need reading.

use headstart_model::Key;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_record::Until;
use std::ops::RangeInclusive;

/// A size in bytes: a number with an optional suffix K, M, G or T (powers of 1024).
pub fn size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size: give bytes, or a number with K, M, G or T, such as 256M");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..]
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// What devices are taken for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disk {
    /// What is known of them.
    Auto,
    /// Devices of a class: as measured where they are of it, else as such devices are on average.
    Class(DeviceClass),
    /// Devices of this cost.
    Cost(Cost),
}

/// A model of a disk: `auto`, a class, or a class with megabytes per second, milliseconds of a read and how
/// many help at once.
pub fn disk(text: &str) -> Result<Disk, String> {
    let bad = || {
        format!(
            "{text:?} is no disk: give auto, disk, flash, network or CLASS,MB/S,MS,DEPTH, such as disk,120,8,1"
        )
    };
    let mut words = text.split(',');
    let class = match words.next() {
        Some("auto") if words.clone().next().is_none() => return Ok(Disk::Auto),
        Some("disk") => DeviceClass::Disk,
        Some("flash") => DeviceClass::Flash,
        Some("network") => DeviceClass::Network,
        _ => return Err(bad()),
    };
    let numbers: Vec<&str> = words.collect();
    let [megabytes, milliseconds, depth] = numbers[..] else {
        return numbers.is_empty().then_some(Disk::Class(class)).ok_or_else(bad);
    };
    let number = |text: &str, range: RangeInclusive<f64>| {
        let number: f64 = text.parse().map_err(|_| bad())?;
        range.contains(&number).then_some(number).ok_or_else(bad)
    };
    Ok(Disk::Cost(Cost {
        class,
        bandwidth: number(megabytes, 1e-3..=1e6)? * 1e6,
        latency: number(milliseconds, 0.0..=1e5)? * 1e-3,
        depth: depth
            .parse()
            .ok()
            .filter(|depth| (1..=4096).contains(depth))
            .ok_or_else(bad)?,
    }))
}

/// A key, as a name that the user gives.
pub fn name(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

/// Bytes a second: a [`size`] of at least a byte.
pub fn rate(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("nothing is moved at a rate of 0: leave it out for no limit".into()),
        rate => Ok(rate),
    }
}

/// When a recording ends: `exit`, `idle` or seconds.
pub fn until(text: &str) -> Result<Until, String> {
    match text {
        "exit" => Ok(Until::Exit),
        "idle" => Ok(Until::Quiet {
            seconds: QUIET_SECONDS,
        }),
        _ => text
            .parse()
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Until::Seconds)
            .ok_or_else(|| format!("{text:?} is neither exit, idle nor a number of seconds")),
    }
}

/// A start has fallen quiet after so long: shorter pauses happen between the steps of a start.
pub const QUIET_SECONDS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("2kb"), Ok(2048));
        for bad in ["", "M", "-1", "1.5G", "1X", "99999999999T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_size_that_is_not_0() {
        assert_eq!(rate("20M"), Ok(20 << 20));
        for bad in ["0", "0K", "x"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn disks() {
        assert_eq!(disk("auto"), Ok(Disk::Auto));
        assert_eq!(disk("flash"), Ok(Disk::Class(DeviceClass::Flash)));
        let Ok(Disk::Cost(cost)) = disk("disk,120,8.5,1") else {
            panic!("no cost")
        };
        assert_eq!((cost.bandwidth, cost.latency, cost.depth), (120e6, 8.5e-3, 1));
        for bad in [
            "",
            "tape",
            "auto,1,2,3",
            "disk,1",
            "disk,0,1,1",
            "disk,1,NaN,1",
            "disk,1,1,0",
            "disk,1,1,1,1",
        ] {
            assert!(disk(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn endings() {
        assert_eq!(until("exit"), Ok(Until::Exit));
        assert_eq!(until("7"), Ok(Until::Seconds(7)));
        assert!(until("0").is_err() && until("soon").is_err());
    }
}

//! Values of options that need reading.

use headstart_model::Key;
use headstart_record::Until;

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

/// A key, as a name that the user gives.
pub fn name(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
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
    fn endings() {
        assert_eq!(until("exit"), Ok(Until::Exit));
        assert_eq!(until("7"), Ok(Until::Seconds(7)));
        assert!(until("0").is_err() && until("soon").is_err());
    }
}

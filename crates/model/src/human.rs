//! Numbers as people read them.

use crate::PageRange;

/// Bytes in binary units, three digits: `0 B`, `4.00 KiB`, `101 MiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{} {unit}", three(value)),
    }
}

/// Pages as bytes.
pub fn pages(pages: u64, page_size: u32) -> String {
    bytes(pages.saturating_mul(u64::from(page_size)))
}

/// A duration, three digits: `0 s`, `350 ns`, `1.20 ms`, `23.0 s`, `3 min 20 s`.
pub fn duration(ns: u64) -> String {
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three(ns as f64 / 1e6)),
        1_000_000_000..120_000_000_000 => format!("{} s", three(ns as f64 / 1e9)),
        _ => {
            let seconds = ns / 1_000_000_000;
            match seconds / 60 {
                minutes @ 0..120 => format!("{minutes} min {} s", seconds % 60),
                minutes => format!("{} h {} min", minutes / 60, minutes % 60),
            }
        }
    }
}

/// How long ago a wall-clock time was, coarsely.
pub fn ago(then_unix_ns: u64, now_unix_ns: u64) -> String {
    if then_unix_ns == 0 {
        return "never".into();
    }
    let Some(seconds) = now_unix_ns.checked_sub(then_unix_ns).map(|ns| ns / 1_000_000_000) else {
        return "in the future".into();
    };
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// A wall-clock time as UTC: `2026-01-31 12:00:00 UTC`.
pub fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days to civil date, by eras of 400 years that begin on 1 March.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

/// A share in percent, without digits that mean nothing.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}

/// A share of 0 to 1 as a percentage.
pub fn weight(weight: f32) -> String {
    format!("{:.0} %", 100.0 * weight)
}

/// Ranges as `0-3 17 20-25`: first and last page.
pub fn ranges<'a>(ranges: impl IntoIterator<Item = &'a PageRange>) -> String {
    let shown = |range: &PageRange| match range.end.saturating_sub(range.start) {
        0 | 1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    };
    ranges.into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Text from a file without what would move a terminal's cursor or end a line.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            // Marks that reverse the direction of writing can make one path look like another.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// A status as wait(2) gives it.
pub fn status(status: i32) -> String {
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, code) => format!("exit status {code}"),
        (signal, _) => format!("killed by signal {signal}"),
    }
}

fn three(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4.00 KiB");
        assert_eq!(bytes(101 << 20), "101 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(pages(u64::MAX, 4096), "16.0 EiB");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_200_000), "1.20 ms");
        assert_eq!(duration(23_000_000_000), "23.0 s");
        assert_eq!(duration(200_000_000_000), "3 min 20 s");
        assert_eq!(duration(u64::MAX), "5124095 h 34 min");
    }

    #[test]
    fn dates_agree_with_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_826_155 * 1_000_000_000), "2000-02-29 12:09:15 UTC");
        assert_eq!(date(1_893_456_000 * 1_000_000_000), "2030-01-01 00:00:00 UTC");
    }

    #[test]
    fn times_past() {
        assert_eq!(ago(0, 5), "never");
        assert_eq!(ago(5, 4), "in the future");
        assert_eq!(ago(1, 90_000_000_001), "90 s ago");
        assert_eq!(ago(1, 5 * 86_400_000_000_000 + 1), "5 days ago");
    }

    #[test]
    fn a_path_cannot_move_the_cursor() {
        assert_eq!(printable("/a\u{1b}[2J\n\u{202e}b"), "/a\\u{1b}[2J\\n\\u{202e}b");
        assert_eq!(printable("/über"), "/über");
    }

    #[test]
    fn statuses() {
        assert_eq!(status(7 << 8), "exit status 7");
        assert_eq!(status(9), "killed by signal 9");
    }
}

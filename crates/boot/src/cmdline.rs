//! `headstart=off|record|on` on the kernel command line decides for one boot.

use crate::boot_report::WayIn;
use std::path::Path;

/// What a boot's command line asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Neither replay nor record.
    Off,
    /// Record and learn, but do not replay.
    Record,
    /// Replay, record and learn, also where boots are bypassed, or where it was this one's turn to go
    /// without.
    On,
    /// What earlier boots have shown to be best.
    #[default]
    Usual,
}

/// This boot's. In a container there is no kernel command line of its own: there, as for systemd, the
/// arguments of process 1 stand for it. Another value than the three is told and ignored.
pub fn wish(place: WayIn, tell: &mut dyn FnMut(String)) -> Wish {
    // The first is systemd's word, the second that of the container's manager to process 1.
    let container = match place {
        WayIn::Init => std::env::var_os("container").is_some(),
        _ => Path::new("/run/systemd/container").exists(),
    };
    let file = if container {
        "/proc/1/cmdline"
    } else {
        "/proc/cmdline"
    };
    // One word that is no text hides no other.
    match std::fs::read(file) {
        Ok(text) => parse(&String::from_utf8_lossy(&text), tell),
        Err(error) => {
            tell(format!("cannot read {file}, taken for empty: {error}"));
            Wish::Usual
        }
    }
}

/// The last of several counts, as for the kernel.
fn parse(line: &str, tell: &mut dyn FnMut(String)) -> Wish {
    let words = line.split(|c: char| c.is_ascii_whitespace() || c == '\0');
    let mut wish = Wish::Usual;
    for value in words.filter_map(|word| word.strip_prefix("headstart=")) {
        wish = match value {
            "off" => Wish::Off,
            "record" => Wish::Record,
            "on" => Wish::On,
            _ => {
                tell(format!(
                    "headstart={value} on the kernel command line: use off, record or on"
                ));
                Wish::Usual
            }
        };
    }
    wish
}

/// Whether this kernel was started in the place of one that has crashed, to save its memory (kdump): in the
/// little that was kept for it nothing is read ahead or recorded, and that it reboots by itself is no
/// failure.
pub fn is_after_crash() -> bool {
    Path::new("/proc/vmcore").exists()
        || std::fs::read("/proc/cmdline").is_ok_and(|line| has_crash_header(&String::from_utf8_lossy(&line)))
}

/// Where the memory of the crashed kernel is described; kdump adds it (kernel-parameters.txt).
fn has_crash_header(line: &str) -> bool {
    line.split_ascii_whitespace()
        .any(|word| word.starts_with("elfcorehdr="))
}

/// Whether the kernel records events from its start on into a trace instance of this name
/// (`trace_instance=`), by its command line.
pub fn has_trace_instance(name: &str) -> bool {
    std::fs::read("/proc/cmdline").is_ok_and(|line| names_instance(&String::from_utf8_lossy(&line), name))
}

/// Flags, addresses and events may follow the name (kernel-parameters.txt).
fn names_instance(line: &str, name: &str) -> bool {
    let words = line.split_ascii_whitespace();
    let mut instances = words.filter_map(|word| word.strip_prefix("trace_instance="));
    instances.any(|instance| instance.split(['^', '@', ',']).next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_named_with_whatever_follows() {
        let is_named = |line: &str| names_instance(line, "headstart");
        assert!(is_named("quiet trace_instance=headstart\n"));
        assert!(is_named(
            "trace_instance=other trace_instance=headstart^traceoff@4M,sched:* ro"
        ));
        assert!(!is_named("trace_instance=headstart2 headstart=on"));
    }

    #[test]
    fn a_kernel_after_a_crash_is_told_by_its_header() {
        assert!(has_crash_header(
            "root=/dev/vda1 ro nr_cpus=1 elfcorehdr=0x6f000000\n"
        ));
        assert!(!has_crash_header("root=/dev/vda1 crashkernel=256M xelfcorehdr=1"));
        assert!(!is_after_crash());
    }

    #[test]
    fn the_last_word_counts_and_nonsense_is_told() {
        let mut told = Vec::new();
        let mut read = |line: &str| parse(line, &mut |line| told.push(line));
        assert_eq!(read("root=/dev/sda1 quiet"), Wish::Usual);
        assert_eq!(read("headstart=off\n"), Wish::Off);
        assert_eq!(read("/sbin/init\0headstart=record\0"), Wish::Record);
        assert_eq!(read("headstart=off headstart=on"), Wish::On);
        assert_eq!(read("noheadstart=off"), Wish::Usual);
        assert_eq!(read("headstart=maybe"), Wish::Usual);
        assert!(told.len() == 1 && told[0].contains("maybe"), "{told:?}");
    }
}

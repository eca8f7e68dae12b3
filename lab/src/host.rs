//! The machine that measures, as a page may name it: nothing that tells whose it is.

use std::fs;

use serde::{Deserialize, Serialize};

/// Facts that figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The kernel's version without what a distributor or owner adds, such as `6.12.57`.
    pub kernel: String,
    /// Processors.
    pub processors: usize,
    /// What they are, as they say themselves; empty where they say nothing.
    pub processor: String,
    /// Whether they are a virtual machine's.
    pub virtual_machine: bool,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

impl Host {
    /// This machine. What it does not tell is left empty.
    pub fn read() -> Host {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let kib = value(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        Host {
            kernel: version(&read("/proc/sys/kernel/osrelease")),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            processor: value(&cpu, "model name").unwrap_or_default(),
            virtual_machine: value(&cpu, "flags")
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            memory_mib: kib.unwrap_or(0) / 1024,
        }
    }

    /// For people.
    pub fn shown(&self) -> String {
        let kind = if self.virtual_machine {
            "a virtual machine"
        } else {
            "a machine"
        };
        let processor = match self.processor.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        format!(
            "{kind} with {} processors{processor} and {:.0} GiB of memory, Linux {}",
            self.processors,
            self.memory_mib as f64 / 1024.0,
            self.kernel
        )
    }
}

/// The first value of `key` in lines of `key : value`.
fn value(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.into_iter().find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

/// The numbers that a kernel's release begins with.
fn version(release: &str) -> String {
    let number = release.split(|c: char| !c.is_ascii_digit() && c != '.').next();
    number.unwrap_or_default().trim_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_cut_to_its_version() {
        for (release, expected) in [
            ("6.12.57+deb13-amd64\n", "6.12.57"),
            ("6.18.44-somebodys\n", "6.18.44"),
            ("5.10.", "5.10"),
            ("", ""),
        ] {
            assert_eq!(version(release), expected);
        }
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let text = "model\t\t: 1\nmodel name\t: A CPU\nflags\t: fpu hypervisor\n";
        assert_eq!(value(text, "model name").as_deref(), Some("A CPU"));
        assert_eq!(value(text, "name"), None);
    }
}

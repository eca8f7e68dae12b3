//! How much memory can be used, and how hard the machine is pressed for memory and I/O.

mod cgroup;

pub use cgroup::limits_even_hidden as limits_of_groups;
use std::io;
use std::path::Path;

/// Memory of this machine, or of the cgroup that limits this process, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// What can be used without swapping: `MemAvailable`, or what the tightest cgroup leaves if that is less.
    pub available: u64,
    /// The lowest cgroup limit above this process, if it is lower than the machine's memory.
    pub limit: Option<u64>,
    /// What has been swapped out: it is needed too, and had no room.
    pub swapped: u64,
    /// Of that, what lies in compressed memory (zram): when it is needed it takes its room from what is
    /// available, and nobody has to wait for a device until then.
    pub in_zram: u64,
}

impl Memory {
    /// What can be used if what lies in compressed memory comes back: `MemAvailable` does not count with
    /// that.
    pub fn usable(&self) -> u64 {
        self.available.saturating_sub(self.in_zram)
    }

    /// What is in use, page cache apart, and what had to be swapped out for it.
    pub fn in_use(&self) -> u64 {
        let total = self.limit.unwrap_or(self.total);
        total.saturating_sub(self.available).saturating_add(self.swapped)
    }
}

/// What the kernel did since boot to find free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Pages that it looked at, in the background and on behalf of tasks that waited for it.
    pub scanned: u64,
    /// Times that a task had to find memory by itself before it could go on.
    pub stalls: u64,
}

/// Time that tasks waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the last 10 s in which some task waited, percent.
    pub some_10: f64,
    /// Time in which some task waited, since boot, microseconds.
    pub some_total_us: u64,
}

/// What PSI tells pressure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory: reclaim, refaults, swapping.
    Memory,
    /// Block I/O.
    Io,
}

/// Memory, now.
pub fn memory() -> io::Result<Memory> {
    let mut memory = match std::fs::read_to_string("/proc/meminfo") {
        Ok(text) => parse_meminfo(&text),
        // A /proc of processes only (`subset=pid`).
        Err(_) => elsewhere(Path::new("/sys/devices/system/node")),
    };
    if memory.swapped > 0 {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        memory.in_zram = parse_zram(&swaps);
    }
    if let Some(limit) = cgroup::limits().memory {
        if limit.bytes < memory.total {
            memory.limit = Some(limit.bytes);
        }
        memory.available = memory.available.min(limit.available);
    }
    Ok(memory)
}

/// What the control groups of the process with this number, all levels of them, leave it, bytes; `None`
/// where none limits it, or that cannot be read.
///
/// Pages are charged to the group of whoever reads them first: what is read ahead for a process of another
/// group is not charged to that group.
pub fn left_to(process: u32) -> Option<u64> {
    Some(cgroup::limits_of(process).memory?.available)
}

/// Memory as sysinfo(2) tells it. That does not tell how much of what is in use holds files and can be had at
/// once: the nodes in sysfs do.
fn elsewhere(nodes: &Path) -> Memory {
    let told = rustix::system::sysinfo();
    let unit = u64::from(told.mem_unit.max(1));
    let bytes = |number: u64| number.saturating_mul(unit);
    let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let files = entries.filter_map(|node| std::fs::read_to_string(node.path().join("meminfo")).ok());
    Memory {
        total: bytes(told.totalram),
        available: bytes(told.freeram) + files.map(|text| file_pages(&text)).sum::<u64>() / 2,
        swapped: bytes(told.totalswap.saturating_sub(told.freeswap)),
        ..Memory::default()
    }
}

/// Bytes of a node that hold files, from its lines `Node 0 Active(file): 12 kB`.
fn file_pages(text: &str) -> u64 {
    let is_file = |name: &str| matches!(name, "Active(file):" | "Inactive(file):");
    let kilobytes = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        is_file(words.next()?).then(|| words.next()?.parse::<u64>().ok())?
    });
    kilobytes.sum::<u64>().saturating_mul(1024)
}

/// Pressure, now; `None` where the kernel keeps no PSI (not built in, or not switched on).
pub fn pressure(resource: Resource) -> Option<Pressure> {
    let file = match resource {
        Resource::Memory => "/proc/pressure/memory",
        Resource::Io => "/proc/pressure/io",
    };
    parse_pressure(&std::fs::read_to_string(file).ok()?)
}

/// What the kernel has done to find free memory; `None` where it does not count that.
pub fn reclaim() -> Option<Reclaim> {
    parse_reclaim(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse_reclaim(text: &str) -> Option<Reclaim> {
    let (mut scanned, mut stalls) = ([None; 2], 0u64);
    for line in text.lines() {
        let Some((name, number)) = line.split_once(' ') else {
            continue;
        };
        match name {
            "pgscan_kswapd" => scanned[0] = number.parse().ok(),
            "pgscan_direct" => scanned[1] = number.parse().ok(),
            // One for each zone; before 4.10 one for all.
            _ if name.starts_with("allocstall") => stalls += number.parse().unwrap_or(0),
            _ => {}
        }
    }
    let [kswapd, direct]: [Option<u64>; 2] = scanned;
    Some(Reclaim {
        scanned: kswapd?.checked_add(direct?)?,
        stalls,
    })
}

/// Bytes that are swapped out to compressed memory, from the lines `NAME TYPE SIZE USED PRIORITY` in KiB.
fn parse_zram(text: &str) -> u64 {
    let used = text.lines().filter(|line| line.starts_with("/dev/zram"));
    let used = used.filter_map(|line| line.split_ascii_whitespace().nth(3)?.parse::<u64>().ok());
    used.fold(0, u64::saturating_add).saturating_mul(1024)
}

fn parse_meminfo(text: &str) -> Memory {
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    };
    Memory {
        total: field("MemTotal").unwrap_or(0),
        available: field("MemAvailable").or_else(|| field("MemFree")).unwrap_or(0),
        swapped: field("SwapTotal")
            .zip(field("SwapFree"))
            .map_or(0, |(all, free)| all.saturating_sub(free)),
        ..Memory::default()
    }
}

fn parse_pressure(text: &str) -> Option<Pressure> {
    let field = |line: &str, name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(line))?;
        line.split_whitespace()
            .find_map(|f| f.strip_prefix(name)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    Some(Pressure {
        some_10: field("some ", "avg10")?,
        some_total_us: field("some ", "total")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:  2048 kB\nMemFree: 100 kB\nMemAvailable:    1024 kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\n";
        let expected = Memory {
            total: 2 << 20,
            available: 1 << 20,
            swapped: 4 << 10,
            ..Memory::default()
        };
        assert_eq!(parse_meminfo(text), expected);
    }

    #[test]
    fn without_meminfo_there_is_about_as_much_memory() {
        let (known, found) = (
            memory().unwrap(),
            elsewhere(Path::new("/sys/devices/system/node")),
        );
        // What the kernel keeps for itself at its start is not counted alike.
        assert!(
            found.total.abs_diff(known.total) < known.total / 16,
            "{found:?} {known:?}"
        );
        assert!(
            found.available > 0 && found.available <= found.total,
            "{found:?} {known:?}"
        );
        let alone = elsewhere(Path::new("/nowhere"));
        assert!(alone.available > 0 && alone.available <= found.total);
        let text = "Node 0 MemFree: 7 kB\nNode 0 Active(file):  3 kB\nNode 0 Inactive(file): 2 kB\nNode 0 Active(anon): 9 kB\n";
        assert_eq!(file_pages(text), 5 << 10);
    }

    #[test]
    fn pressure_is_read_and_nonsense_is_not() {
        let text =
            "some avg10=1.50 avg60=0.25 avg300=0.00 total=12345\nfull avg10=0.75 avg60=0 avg300=0 total=99\n";
        let expected = Pressure {
            some_10: 1.5,
            some_total_us: 12345,
        };
        assert_eq!(parse_pressure(text), Some(expected));
        assert_eq!(parse_pressure("nothing"), None);
    }

    #[test]
    fn reclaim_is_that_of_both_kinds_and_all_zones() {
        let text = "pgscan_kswapd 5\npgscan_direct 7\npgscan_direct_throttle 9\nallocstall_dma 0\n\
                    allocstall_normal 3\nallocstall_movable 4\n";
        let expected = Reclaim {
            scanned: 12,
            stalls: 7,
        };
        assert_eq!(parse_reclaim(text), Some(expected));
        assert_eq!(parse_reclaim("pgscan_kswapd 5\n"), None);
    }

    #[test]
    fn what_lies_in_compressed_memory_is_not_available() {
        let text = "Filename Type Size Used Priority\n/dev/sda2 partition 999 70 -2\n/dev/zram0 partition 500 30 100\n";
        assert_eq!((parse_zram(text), parse_zram("")), (30 << 10, 0));
        let memory = Memory {
            total: 1000,
            available: 300,
            limit: None,
            swapped: 100,
            in_zram: 30,
        };
        assert_eq!((memory.usable(), memory.in_use()), (270, 800));
        let limited = Memory {
            limit: Some(500),
            ..memory
        };
        assert_eq!(limited.in_use(), 300);
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = memory().unwrap();
        assert!(memory.total > 0 && memory.available > 0 && memory.available <= memory.total);
    }
}

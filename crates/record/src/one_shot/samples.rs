//! How busy the processors are and what memory holds, from /proc.

use headstart_model::activity::{BusySample, MemorySample};
use std::fs::File;
use std::io::{self, Read, Seek};

/// More than /proc/meminfo has, and than the first line of /proc/stat.
const MOST: u64 = 8 << 10;

/// The two files, kept open.
pub(crate) struct Samples {
    stat: File,
    meminfo: File,
    text: Vec<u8>,
    /// Ticks so far: those that were used, and all.
    before: Option<(u64, u64)>,
}

impl Samples {
    /// Opens both.
    pub(crate) fn open() -> io::Result<Samples> {
        Ok(Samples {
            stat: File::open("/proc/stat")?,
            meminfo: File::open("/proc/meminfo")?,
            text: Vec::new(),
            before: None,
        })
    }

    /// Takes a sample of each; of the processors none the first time, and none where no tick has passed.
    pub(crate) fn sample(&mut self, time_ns: u64) -> (Option<BusySample>, Option<MemorySample>) {
        let now = read(&mut self.stat, &mut self.text).and_then(ticks);
        let busy = match (self.before, now) {
            (Some((used, all)), Some(now)) => share(now.0.saturating_sub(used), now.1.saturating_sub(all)),
            _ => None,
        };
        self.before = now.or(self.before);
        let memory = read(&mut self.meminfo, &mut self.text).and_then(|text| memory(text, time_ns));
        (busy.map(|busy| BusySample { time_ns, busy }), memory)
    }
}

/// The file from its beginning.
fn read<'a>(file: &mut File, text: &'a mut Vec<u8>) -> Option<&'a str> {
    text.clear();
    file.rewind().ok()?;
    file.take(MOST).read_to_end(text).ok()?;
    // What was cut may end within nothing but ASCII.
    std::str::from_utf8(text).ok()
}

/// Of /proc/stat the ticks of all processors that were used, and all of them.
fn ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' are in user and nice.
    let numbers: Vec<u64> = line
        .split_ascii_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    let total: u64 = numbers.iter().fold(0, |sum, ticks| sum.saturating_add(*ticks));
    let idle = numbers.get(3)?.saturating_add(*numbers.get(4)?);
    Some((total.saturating_sub(idle), total))
}

fn share(used: u64, all: u64) -> Option<f32> {
    (all > 0).then(|| (used as f64 / all as f64).min(1.0) as f32)
}

/// What /proc/meminfo says.
fn memory(text: &str, time_ns: u64) -> Option<MemorySample> {
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(MemorySample {
        time_ns,
        free: field("MemFree:")?,
        // Pages of files, and those of block devices.
        page_cache: field("Cached:")?.saturating_add(field("Buffers:")?),
        dirty: field("Dirty:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        assert_eq!(ticks("cpu  10 1 5 80 4 1 1 2 9 9\ncpu0 1\n"), Some((20, 104)));
        assert_eq!(ticks("cpu0 1 2 3\n"), None);
        assert_eq!(ticks("cpu  1 2 3\n"), None);
        assert_eq!(share(0, 0), None);
        assert_eq!(share(1, 4), Some(0.25));
        let text =
            "MemTotal:  9 kB\nMemFree:  2 kB\nBuffers: 1 kB\nCached: 3 kB\nSwapCached: 7 kB\nDirty: 1 kB\n";
        let expected = MemorySample {
            time_ns: 5,
            free: 2048,
            page_cache: 4096,
            dirty: 1024,
        };
        assert_eq!(memory(text, 5), Some(expected));
        assert_eq!(memory("MemFree: x kB\n", 5), None);
    }

    #[test]
    fn this_machine_is_sampled() {
        let mut samples = Samples::open().unwrap();
        let (first, memory) = samples.sample(1);
        assert!(first.is_none() && memory.is_some_and(|it| it.free > 0 && it.page_cache > 0));
        // At least one tick of 10 ms passes.
        std::thread::sleep(std::time::Duration::from_millis(60));
        let (busy, _) = samples.sample(2);
        assert!(busy.is_some_and(|it| (0.0..=1.0).contains(&it.busy)));
    }
}

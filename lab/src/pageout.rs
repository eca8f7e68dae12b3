//! Measured starts run between the moments at which the kernel takes idle memory back.
//!
//! On some machines the kernel pages idle memory out every few seconds (a DAMON scheme,
//! `/sys/kernel/mm/damon`), and with it pages that were just read into it: the start that lost them reads
//! them again, page by page. Which of two setups that hits is a matter of how its length fits into the
//! period, so chance does not even it out.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// How often it is looked at.
const STEP: Duration = Duration::from_millis(25);
/// Processor time within two steps from which on a thread has paged out: it takes less than 2 ms to look at
/// what was used, and more than 8 ms to page out.
const PAGES_OUT: Duration = Duration::from_millis(5);
/// Where nothing is paged out for so long, nothing will be.
const PATIENCE: Duration = Duration::from_secs(7);

/// Waits until the kernel has just paged idle memory out; returns at once where it does no such thing.
pub fn wait() {
    let threads = threads();
    if threads.is_empty() {
        return;
    }
    let used = || {
        threads
            .iter()
            .filter_map(|path| run_time(&fs::read_to_string(path).ok()?))
            .sum()
    };
    look_on(used, || sleep(STEP));
}

/// Looks at the processor time used so far, again and again with a pause before each look, until much of it
/// has been used and no more is, or patience ends.
fn look_on(mut used: impl FnMut() -> Duration, mut pause: impl FnMut()) {
    let mut last = [used(); 2];
    let mut pages_out = false;
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        pause();
        let now = used();
        let busy = now.saturating_sub(last[0]) >= PAGES_OUT;
        if pages_out && !busy {
            return;
        }
        pages_out |= busy;
        last = [last[1], now];
    }
}

/// What tells how long each of the kernel's threads that watch memory has run.
fn threads() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let watches =
        |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("kdamond."));
    processes
        .map(|entry| entry.path())
        .filter(watches)
        .map(|path| path.join("schedstat"))
        .collect()
}

/// The first of the numbers of a thread's `schedstat`: nanoseconds on a processor.
fn run_time(schedstat: &str) -> Option<Duration> {
    let nanoseconds = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_time_is_the_first_number_of_three() {
        assert_eq!(run_time("1500000 7 3\n"), Some(Duration::from_micros(1500)));
        assert_eq!(run_time(""), None);
        let own = fs::read_to_string("/proc/self/schedstat").unwrap();
        assert!(run_time(&own).is_some(), "{own:?}");
    }

    /// How often it is looked at a thread that uses so many milliseconds between one look and the next, and
    /// in the end none.
    fn looks(spent: &[u64]) -> usize {
        let (mut at, mut used) = (0, 0);
        let mut looks = 0;
        let use_time = || {
            used += spent.get(at).copied().unwrap_or(0);
            at += 1;
            Duration::from_millis(used)
        };
        look_on(use_time, || looks += 1);
        looks
    }

    #[test]
    fn it_ends_when_idle_memory_has_been_paged_out() {
        // The first look has nothing before it to be compared with.
        assert_eq!(looks(&[900, 0, 1, 0, 22, 11, 0, 0, 1]), 7);
        assert_eq!(looks(&[0, 3, 3, 0, 0]), 3, "seen over two steps");
    }

    #[test]
    fn where_nothing_is_paged_out_it_ends_all_the_same() {
        assert_eq!(looks(&[0, 1, 1, 2, 1]), 280);
        assert_eq!(looks(&[6; 1000]), 280, "no end to it");
    }
}

//! What is shown while an experiment runs: a line for each run, and how long the rest will take.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::print;

/// A duration for people: `45 s`, `12 min`, `3 h 20 min`.
pub fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A message of several lines in one; where it would fill the screen, its middle is left out: a command tells
/// last why it failed.
pub fn one_line(text: &str) -> String {
    const END: usize = 150;
    let line: Vec<char> = text
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" | ")
        .chars()
        .collect();
    if line.len() <= 2 * END {
        return line.into_iter().collect();
    }
    let (head, tail) = (&line[..END], &line[line.len() - END..]);
    head.iter().chain(&[' ', '…', ' ']).chain(tail).collect()
}

/// A bar where there is a terminal, lines everywhere.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Runs that an earlier command made.
    before: u64,
    begin: Instant,
}

impl Progress {
    /// For `runs` of which `done` are made.
    pub fn new(runs: usize, done: usize) -> Progress {
        let bar = ProgressBar::new(runs as u64).with_position(done as u64);
        // The template is a constant; the default style is as good when it is refused.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress {
            bar,
            before: done as u64,
            begin: Instant::now(),
        }
    }

    /// What is being done now.
    pub fn doing(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A line that stays.
    pub fn line(&self, line: &str) {
        if self.bar.is_hidden() {
            print::note(line);
        } else {
            self.bar.println(line);
        }
    }

    /// One run more, with its line and what is left: each as long as the mean of those that were made.
    pub fn run(&self, line: &str) {
        self.bar.inc(1);
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        let share = all.saturating_sub(done) as f64 / (done - self.before).max(1) as f64;
        let left = shown(self.begin.elapsed().mul_f64(share));
        let width = all.to_string().len();
        self.line(&format!("[{done:>width$}/{all}] {line}, {left} left"));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        self.line(&format!("done in {}", shown(self.begin.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("it ended:\n  no luck\n"), "it ended: | no luck");
        let long = one_line(&format!("first {} last", "ä".repeat(400)));
        assert!(
            long.starts_with("first ä") && long.ends_with("ä last") && long.contains(" … "),
            "{long}"
        );
        assert_eq!(long.chars().count(), 303);
    }

    #[test]
    fn durations_for_people() {
        let shown = |s| shown(Duration::from_secs(s));
        assert_eq!(
            [shown(45), shown(700), shown(12_000)],
            ["45 s", "12 min", "3 h 20 min"]
        );
    }
}

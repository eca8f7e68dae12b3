//! A machine's console: every line goes to a log, and lines that a recipe names stamp marks with the time
//! they came.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Mark;
use crate::image::Sign;

/// What comes from a console.
#[derive(Debug)]
enum Event {
    Mark(Mark),
    /// No more will come: the machine has ended.
    End,
}

/// The marks of one start, as they come.
#[derive(Debug)]
pub(super) struct Marks {
    events: Receiver<Event>,
    begin: Instant,
    limit: Duration,
    seen: Vec<Mark>,
}

/// How long to wait for lines that were on their way when the last mark came.
const LATE: Duration = Duration::from_millis(100);

impl Marks {
    /// Reads `console` in a thread of its own until its end, into `log`; each of `signs` is stamped when it
    /// is first seen, in seconds since `begin`. A start that takes longer than `limit` has failed.
    pub(super) fn watch(
        console: impl Read + Send + 'static,
        log: File,
        signs: &[Sign],
        begin: Instant,
        limit: Duration,
    ) -> Result<Marks> {
        let (sender, events) = channel();
        let signs = signs.to_vec();
        std::thread::Builder::new()
            .name("console".into())
            .spawn(move || read(console, log, signs, begin, &sender))
            .context("starting a thread for the console")?;
        Ok(Marks {
            events,
            begin,
            limit,
            seen: Vec::new(),
        })
    }

    /// Adds one that did not come by the console.
    pub(super) fn add(&mut self, name: &str, at: Instant) {
        self.seen.push(Mark {
            name: name.to_owned(),
            seconds: at.duration_since(self.begin).as_secs_f64(),
        });
    }

    /// Waits for the mark `until`, and meanwhile calls `poll`, which must return after some 50 ms at most.
    pub(super) fn wait_for(&mut self, until: &str, mut poll: impl FnMut(&mut Marks)) -> Result<()> {
        loop {
            poll(self);
            let ended = loop {
                match self.events.try_recv() {
                    Ok(Event::Mark(mark)) => self.seen.push(mark),
                    Ok(Event::End) | Err(TryRecvError::Disconnected) => break true,
                    Err(TryRecvError::Empty) => break false,
                }
            };
            if self.seen.iter().any(|mark| mark.name == until) {
                return Ok(());
            }
            if ended {
                bail!(
                    "the machine ended before it reached {until:?}; it had reached {}",
                    self.names()
                );
            }
            if self.begin.elapsed() > self.limit {
                let limit = self.limit.as_secs();
                bail!(
                    "the machine did not reach {until:?} within {limit} s, only {}",
                    self.names()
                );
            }
        }
    }

    /// All marks up to `until`, which has come, in order of time.
    pub(super) fn up_to(&mut self, until: &str) -> Vec<Mark> {
        while let Ok(Event::Mark(mark)) = self.events.recv_timeout(LATE) {
            self.seen.push(mark);
        }
        let mut seen = std::mem::take(&mut self.seen);
        seen.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        if let Some(last) = seen.iter().position(|mark| mark.name == until) {
            seen.truncate(last + 1);
        }
        seen
    }

    fn names(&self) -> String {
        if self.seen.is_empty() {
            return "nothing".into();
        }
        let names: Vec<&str> = self.seen.iter().map(|mark| mark.name.as_str()).collect();
        names.join(", ")
    }
}

fn read(console: impl Read, mut log: File, mut missing: Vec<Sign>, begin: Instant, events: &Sender<Event>) {
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    // A prompt has no end of line: it is of no interest until the next one comes. Errors end a console like
    // its end does.
    while let Ok(1..) = console.read_until(b'\n', &mut line) {
        let seconds = begin.elapsed().as_secs_f64();
        let text = plain(&line);
        // The log is for people; the marks must not depend on it.
        let _ = writeln!(log, "{seconds:9.3} {text}");
        if let Some(at) = missing.iter().position(|sign| text.contains(&sign.line)) {
            let name = missing.remove(at).mark;
            let _ = events.send(Event::Mark(Mark { name, seconds }));
        }
        line.clear();
    }
    let _ = events.send(Event::End);
}

/// A line without what makes terminals colourful (ECMA-48 control sequences), control characters and bytes
/// that are not UTF-8.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '\u{1b}' {
            if characters.next_if_eq(&'[').is_some() {
                // Parameters, then one final byte.
                while characters
                    .next()
                    .is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c))
                {}
            }
        } else if !c.is_control() {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_returns_are_taken_off() {
        let line =
            b"[\x1b[0;32m  OK  \x1b[0m] Reached target \x1b[0;1;39mbasic.target\x1b[0m - Basic System.\r\r\n";
        assert_eq!(
            plain(line),
            "[  OK  ] Reached target basic.target - Basic System."
        );
        assert_eq!(plain(b"\x1b"), "");
    }

    fn watch(text: &'static [u8], log: &std::path::Path) -> Marks {
        let signs =
            [("up", "Welcome"), ("basic", "target basic"), ("later", "later")].map(|(mark, line)| Sign {
                mark: mark.into(),
                line: line.into(),
            });
        let log = File::create(log).unwrap();
        Marks::watch(text, log, &signs, Instant::now(), Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn the_first_line_that_fits_stamps_each_mark_once() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut marks = watch(b"Welcome\r\nReached target basic\nWelcome again\nlater", &log);
        marks.wait_for("basic", |_| {}).unwrap();
        let marks = marks.up_to("basic");
        let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["up", "basic"]);
        assert!(marks[0].seconds <= marks[1].seconds);
        assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 4);
    }

    #[test]
    fn a_machine_that_ends_early_says_how_far_it_came() {
        let directory = tempfile::tempdir().unwrap();
        let mut marks = watch(b"Welcome\n", &directory.path().join("log"));
        let error = marks.wait_for("basic", |_| {}).unwrap_err().to_string();
        assert!(error.contains("\"basic\"") && error.contains("up"), "{error}");
    }
}

//! What is in memory of a plan's remote files, as a process tells that may be left behind.
//!
//! The kernel tells without a server which paths it remembers; but which pages are there only an open file
//! tells, and an open asks the server. So the files are opened many at once, by threads of a process that is
//! killed when it is late. It may be deaf to that as long as its server is silent. So it is no child of the
//! caller, which may become the command: a process between them forks it, passes on what it tells, and ends.

use super::costs::{Costs, Place};
use super::found::{Found, Resident};
use super::look;
use crate::forked;
use headstart_model::plan::{Plan, Request};
use headstart_system::launch::{background_of, send, wait_for};
use headstart_system::limits::without_core;
use headstart_system::mounts::{MountTable, may_wait_for_servers};
use rustix::process::Signal;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The start waits for the answer, so long at most. A server that needs longer for an open makes it wait
/// longer for each of its files.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// The process between ends within this time after that.
const ENDS_WITHIN: Duration = Duration::from_millis(50);
/// So many places of the whole plan are looked at: where a tenth of its cost is cold they miss it one time in
/// eight.
const LOOKS: usize = 20;
/// So many files are opened at once.
const AT_ONCE: usize = 16;
/// Stack of their threads, bytes: their calls are few.
const STACK: usize = 256 << 10;
/// More than a [`Found`] takes, bytes.
const ANSWER: u64 = 4096;

/// What a process has told of the remote files of one plan, asked when it is first needed.
#[derive(Debug, Default)]
pub struct Remote {
    asked: Option<io::Result<Option<Found>>>,
}

impl Remote {
    /// What was found elsewhere, with what is told of the remote part.
    pub(super) fn added_to(&mut self, found: Found, plan: &Plan<'_>, costs: &Costs, draw: u64) -> Found {
        // Where nobody can be asked the replay finds out.
        let asked = self.asked.get_or_insert_with(|| ask(plan, costs, draw));
        found.with_remote(asked.as_ref().ok().copied().flatten())
    }

    /// Whether nobody could be asked.
    pub fn is_unknown(&self) -> bool {
        matches!(self.asked, Some(Err(_)))
    }
}

/// What is found in the plan's remote files; `None` where nothing was told in time. Fails where no process
/// can be forked, such as in a process of several threads.
fn ask(plan: &Plan<'_>, costs: &Costs, draw: u64) -> io::Result<Option<Found>> {
    let until = Instant::now() + ANSWERS_WITHIN;
    let (stream, pid) = background_of(
        || None,
        |stream| pass_on(&stream, until, |stream| tell(&stream, plan, costs, draw)),
    )?;
    let answer = forked::read_to_end(&stream, ANSWER, until + ENDS_WITHIN);
    drop(stream);
    wait_for(pid, ENDS_WITHIN);
    let told = answer.ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(told)
}

/// Forks a process that does this, and passes on what it tells until then; the status of this process.
fn pass_on(mut stream: &UnixStream, until: Instant, work: impl FnOnce(UnixStream) -> i32) -> i32 {
    without_core();
    let own = std::process::id();
    let forked = background_of(
        || None,
        |stream| match forked::dies_with(own) {
            true => work(stream),
            false => 1,
        },
    );
    let Ok((theirs, pid)) = forked else { return 1 };
    let answer = forked::read_to_end(&theirs, ANSWER, until);
    send(pid, Signal::KILL.as_raw());
    i32::from(!answer.is_ok_and(|answer| stream.write_all(&answer).is_ok()))
}

/// Tells what is found in the plan's remote files; the status of this process.
fn tell(mut stream: &UnixStream, plan: &Plan<'_>, costs: &Costs, draw: u64) -> i32 {
    may_wait_for_servers();
    let Ok(mounts) = MountTable::read() else { return 1 };
    let is_remote = |request: &Request| {
        let entry = plan.file(request.file as usize);
        let mount = entry.and_then(|entry| mounts.lookup(entry.path.as_bytes()));
        mount.is_some_and(|mount| mount.is_remote)
    };
    let found = find(plan, costs, &mounts, draw, &is_remote);
    let told = found.and_then(|found| serde_json::to_vec(&found).ok());
    i32::from(told.is_none_or(|told| stream.write_all(&told).is_err()))
}

/// Whether all of the places that are looked at is in memory, of a plan's files on one device. Only for a
/// process that may wait for servers.
pub(crate) fn is_warm(plan: &Plan<'_>, device: u16, draw: u64) -> bool {
    let Ok(mounts) = MountTable::read() else {
        return false;
    };
    let is_there = |request: &Request| request.device == device;
    let found = find(plan, &Costs::for_plan(plan), &mounts, draw, &is_there);
    found.is_some_and(|found| {
        let Resident { looks, cold, .. } = found.resident();
        looks > 0 && cold == 0.0
    })
}

/// What is found where these requests read, many files at once; `None` where a thread fails.
fn find(
    plan: &Plan<'_>,
    costs: &Costs,
    mounts: &MountTable,
    draw: u64,
    these: &dyn Fn(&Request) -> bool,
) -> Option<Found> {
    let places = costs.places(LOOKS, draw).into_iter().filter_map(|place| {
        let request = costs.requests.get(place.part.request)?;
        these(request).then_some((request.file, place))
    });
    let shares = shared_out(places);
    std::thread::scope(|scope| {
        let look_at = |places| move || look(plan, costs, mounts, places, ANSWERS_WITHIN).0;
        let threads = shares.into_iter().map(|places| {
            let thread = Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, look_at(places))
        });
        let threads = threads.collect::<io::Result<Vec<_>>>().ok()?;
        (threads.into_iter()).try_fold(Found::default(), |found, thread| {
            Some(found.with_remote(Some(thread.join().ok()?)))
        })
    })
}

/// The places of each thread; those in one file are one thread's.
fn shared_out(places: impl Iterator<Item = (u32, Place)>) -> Vec<Vec<Place>> {
    let mut shares: Vec<Vec<Place>> = Vec::new();
    let mut whose: HashMap<u32, usize> = HashMap::new();
    for (file, place) in places {
        let next = whose.len() % AT_ONCE;
        let share = *whose.entry(file).or_insert(next);
        if share == shares.len() {
            shares.push(Vec::new());
        }
        shares[share].push(place);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::costs::Part;
    use super::super::found::Sampled;
    use super::*;

    fn place(weight: f64) -> Place {
        let part = Part {
            request: 0,
            path: weight,
            data: 0.0,
        };
        Place {
            part,
            at: 0.0,
            weight,
        }
    }

    fn found(of: &[(Sampled, f64, f64)]) -> Found {
        let mut found = Found::default();
        (of.iter()).for_each(|(sampled, weight, cold)| found.add(*sampled, &place(*weight), *cold));
        found
    }

    const HERE: (Sampled, f64, f64) = (Sampled::Path, 1.0, 0.0);
    const REMOTE: (Sampled, f64, f64) = (Sampled::Remote, 3.0, 0.0);

    #[test]
    fn what_is_remote_is_unknown_until_a_process_tells() {
        let asked = found(&[HERE, REMOTE]);
        let resident = asked.resident();
        assert!(asked.may_be_warm() && resident.looks == 1);
        assert_eq!((resident.cold, resident.unknown), (0.0, 0.75));
        // It is cold if nothing is told, and what is told counts by what it costs.
        let late = asked.with_remote(None).resident();
        assert_eq!((late.cold, late.unknown), (0.75, 0.0));
        let told = found(&[(Sampled::Path, 2.0, 0.0), (Sampled::ColdPath(1), 1.0, 1.0)]);
        let known = asked.with_remote(Some(told)).resident();
        assert_eq!((known.cold, known.unknown, known.looks), (0.25, 0.0, 3));
        let denied = found(&[(Sampled::Unknown, 3.0, 0.0)]);
        assert_eq!(asked.with_remote(Some(denied)).resident().unknown, 0.75);
    }

    #[test]
    fn nobody_is_asked_where_that_decides_nothing() {
        let cold = (Sampled::ColdPath(1), 2.0, 1.0);
        assert!(!found(&[HERE]).may_be_warm());
        assert!(!found(&[HERE, cold, REMOTE]).may_be_warm());
        assert!(found(&[REMOTE]).may_be_warm());
    }

    #[test]
    fn the_places_in_one_file_are_one_threads() {
        let places = (0..40).map(|n| (n % 20, place(f64::from(n))));
        let shares = shared_out(places);
        assert_eq!(shares.len(), AT_ONCE);
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 40);
        let of_first: Vec<f64> = shares[0].iter().map(|place| place.weight).collect();
        assert_eq!(of_first, [0.0, 16.0, 20.0, 36.0]);
    }
}

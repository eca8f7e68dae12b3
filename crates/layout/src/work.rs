//! Moving files into room that was taken, a batch at a time, one extent a call. After each batch what was
//! moved is written, read back from the device and compared with what it was, and its extents are asked for,
//! while the device reads the next batch. Whatever fails, each file is whole, in its old or its new place.

use crate::compare::{CHANGED, Moved, ask_for_range, read, read_back, sums};
use crate::moves::{Move, moves};
use crate::moving::donor::Donor;
use crate::moving::movable::Movable;
use crate::moving::volume::{RUNS, Volume};
use crate::order::{Item, NO_DATA, Order};
use crate::pace::{Halt, Pace};
use crate::results::{LayoutResult, Turn};
use crate::room::Room;
use crate::survey::{LEASED, RUNS_ON, WAITS, expect, open};
use anyhow::Result;
use headstart_system::memory::memory;
use headstart_system::mounts::MountTable;
use headstart_system::residency::advise_dontneed;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::time::Duration;

/// So many files, or so many bytes, are moved before they are written and compared.
const BATCH_FILES: usize = 256;
const BATCH_BYTES: u64 = 32 << 20;
/// So many bytes are read ahead of the moves, at most, and no more than an eighth of the memory that is left:
/// the more, the less the head has to go back and forth.
const MOST_AHEAD: u64 = 128 << 20;
/// What the room is called that has the old contents of files which are not what they were.
const RESCUE: &str = "headstart-layout-rescue";
/// So many such files there may be: others can make room scarce by what they do to the device, and not fill
/// it.
const MOST_RESCUES: u32 = 100;
/// What a file is called that has the old contents of one that others than root may have changed, and how
/// many of them there may be.
const ASIDE: &str = "headstart-layout-changed";
const MOST_ASIDE: u32 = 10;
/// So many reasons are told why contents cannot be kept.
const MOST_TOLD: usize = 2;
/// So often a move is tried again.
const ATTEMPTS: u32 = 5;

/// One file system.
pub(crate) struct Work<'a, 'b> {
    pub turn: &'a Turn,
    /// The last is of this file system.
    pub all: &'a mut [LayoutResult],
    pub order: &'a Order,
    pub mounts: &'a MountTable,
    pub volume: &'a Volume,
    pub room: &'a Room,
    pub pace: &'a mut Pace<'b>,
    pub tell: &'a mut dyn FnMut(&LayoutResult),
    /// What is moved is moved out of the way: it counts as that.
    pub evicts: bool,
    /// So many of the order's files were asked for.
    pub asked: usize,
}

impl Work<'_, '_> {
    /// Moves all, in order.
    pub fn run(&mut self) -> Result<(), Halt> {
        let items = &self.order.items;
        let (mut from, mut first) = (0, 0);
        while first < items.len() {
            let after = first + batch(&items[first..]);
            self.ask_for(after);
            // Where others are looked for, nothing more is asked for: what is on its way then counts as
            // theirs, and is waited for.
            let looks = self.pace.is_to_look();
            let next = if looks {
                after
            } else {
                after + batch(&items[after..])
            };
            self.volume.check_writable()?;
            let ended = self.move_batch(&items[first..after], from, next);
            let kept = self.turn.keep(self.all);
            // What failed is told first: it may name where contents are that are nowhere else.
            let moved = ended?;
            kept?;
            // After the last there is nothing to stand back from.
            if after < items.len() {
                self.pace.make_way(moved, looks)?;
            }
            from += items[first..after].iter().map(Item::bytes).sum::<u64>();
            first = after;
        }
        Ok(())
    }

    /// Has the order's files read, those before `next` and some more, as far as they were not asked for: in
    /// the order of the device, all that is to be moved of them. What is not asked for is read when it is
    /// needed.
    fn ask_for(&mut self, next: usize) {
        if self.asked >= next {
            return;
        }
        let room = memory().map_or(0, |memory| memory.available / 8);
        let mut left = room.clamp(BATCH_BYTES, MOST_AHEAD);
        let mut parts = Vec::new();
        for (number, item) in self.order.items.iter().enumerate().skip(self.asked) {
            if self.asked >= next && item.bytes() > left {
                break;
            }
            left = left.saturating_sub(item.bytes());
            self.asked += 1;
            for range in &item.ranges {
                let at = crate::predict::on_device(&item.facts.extents, range.start, 1);
                parts.push((at.first().map_or(0, |at| at.start), number, *range));
            }
        }
        parts.sort_unstable_by_key(|(at, number, range)| (*at, *number, range.start));
        // One at a time: all of them are more than a process may have open.
        let mut last = None;
        for (_, number, range) in parts {
            if last.as_ref().is_none_or(|(of, _)| *of != number) {
                // What is not what it was is not moved either.
                let opened = open(&self.order.items[number], self.mounts);
                last = Some((number, opened.ok().map(|opened| File::from(opened.fd))));
            }
            if let Some((_, Some(file))) = &last {
                ask_for_range(file, range.start, range.pages());
            }
        }
    }

    /// Moves some files to the order's offset `from` and after it, has those before `next` read, and compares
    /// what was moved; how many bytes that were.
    fn move_batch(&mut self, items: &[Item], mut from: u64, next: usize) -> Result<u64, Halt> {
        let mut files = Vec::new();
        for item in items {
            let path = item.facts.path.as_path();
            match Movable::open(self.volume, self.mounts, path, &expect(item)) {
                Ok(file) => match file.extents() {
                    Ok(extents) => {
                        let moves = moves(&item.ranges, &extents, &self.room.pieces, from);
                        files.push((item, file, moves));
                    }
                    Err(error) => self.leave(not_now(&error)),
                },
                Err(why) if why == RUNS => {
                    let at_shutdown = self.all.last().is_some_and(|kept| kept.at_shutdown);
                    self.leave(if at_shutdown { RUNS_ON } else { WAITS }.to_owned());
                }
                Err(why) => self.leave(why),
            }
            from += item.bytes();
        }
        let mut moved = Vec::new();
        let mut halted = None;
        for (item, file, moves) in files {
            halted = halted.or_else(|| self.pace.halt());
            if halted.is_some() {
                break;
            }
            match self.file(item, file, &moves) {
                // What was moved before is compared all the same.
                Ok((file, ended)) => {
                    moved.push(file);
                    halted = ended;
                }
                Err(why) => self.leave(why),
            }
        }
        if moved.last().is_some_and(|last: &Moved| last.stays.is_some()) {
            // Its rest may not have been moved because it ends here.
            halted = halted.or_else(|| self.pace.halt());
        }
        if halted.is_none() {
            self.ask_for(next);
        }
        let bytes = self.compare(moved)?;
        match halted {
            Some(halt) => Err(halt),
            None => Ok(bytes),
        }
    }

    /// Moves one file, with why nothing more is to be moved, if so; or says why it stays.
    fn file(&self, item: &Item, file: Movable, moves: &[Move]) -> Result<(Moved, Option<Halt>), String> {
        // What only this file has: its owner leases it, or a sector of it cannot be read.
        let before = file.write_back().and_then(|()| sums(&file, moves));
        let before = before.map_err(|error| not_now(&error))?;
        let (mut done, mut bytes, mut stays) = (Vec::new(), 0, None);
        let mut halted = None;
        for part in moves {
            if !done.is_empty() && self.pace.halt().is_some() {
                stays = Some("the work was stopped".to_owned());
                break;
            }
            let moved = match attempt(&file, self.volume, &self.room.donors[part.donor], part) {
                Ok(()) => part.length,
                // Somebody writes it, maps it, or the kernel knows a reason of its own. It may have moved a
                // part before that; where that cannot be told it counts as moved.
                Err(error) => {
                    stays = Some(match error.kind() {
                        io::ErrorKind::WouldBlock => not_now(&error),
                        _ => format!("the kernel does not move it: {error}"),
                    });
                    if ends_all(&error) {
                        halted = Some(Halt::Failed(anyhow::anyhow!("{}: {error}", item.facts.path)));
                    }
                    file.extents().map_or(part.length, |now| part.done(&now))
                }
            };
            if moved > 0 {
                done.push(*part);
                bytes += moved;
            }
            if stays.is_some() {
                break;
            }
        }
        if done.is_empty() && halted.is_none() {
            return Err(stays.unwrap_or_else(|| NO_DATA.to_owned()));
        }
        let moved = Moved {
            path: item.facts.path.clone(),
            file,
            moves: done,
            bytes,
            stays,
            before,
        };
        Ok((moved, halted))
    }

    /// Has what was moved compared with what it was, and counts it; the bytes that were moved.
    fn compare(&mut self, moved: Vec<Moved>) -> Result<u64> {
        // The donors still have the old places. Whatever keeps it from being known that the new ones have the
        // same, they stay as files.
        let compared = read_back(self.volume, &moved).map_err(|error| self.rescue(error, &moved))?;
        let mut moved_bytes = 0;
        for (one, compared) in moved.into_iter().zip(compared) {
            match compared {
                Ok(bytes) => {
                    moved_bytes += bytes;
                    let evicts = self.evicts;
                    self.note(|kept| match evicts {
                        true => kept.evicted += u64::from(one.stays.is_none()),
                        false => {
                            kept.files += u64::from(one.stays.is_none());
                            kept.bytes += bytes;
                        }
                    });
                    if let Some(why) = one.stays {
                        self.leave(format!("a part of it stays: {why}"));
                    }
                }
                Err(why) if why == CHANGED => {
                    let kept = self.set_aside(&one).map_or_else(
                        |error| format!("what it was cannot be kept: {error}"),
                        |name| format!("what {} was is also in {name}", one.path),
                    );
                    self.leave(format!("{why}; {kept}"));
                }
                Err(why) => self.leave(why),
            }
        }
        if let Some(kept) = self.all.last() {
            (self.tell)(kept);
        }
        Ok(moved_bytes)
    }

    /// Keeps what was moved of a file, as it was, in another; its name.
    fn set_aside(&self, moved: &Moved) -> io::Result<String> {
        let aside = self.volume.donor(moved.bytes)?;
        let (mut at, size) = (0, moved.file.stat.size);
        for part in &moved.moves {
            let donor = &self.room.donors[part.donor];
            let length = part.length.min(moved.bytes - at);
            donor.recover(self.volume, part.to, length)?;
            donor.copy(part.to, length.min(size.saturating_sub(part.start)), &aside, at)?;
            at += length;
        }
        keep(&aside, self.volume, &mut names(ASIDE, MOST_ASIDE))
    }

    /// Keeps the room as files that tell what these were, under names that are free; adds to the error which.
    fn rescue(&self, error: anyhow::Error, moved: &[Moved]) -> anyhow::Error {
        let mut names = names(RESCUE, MOST_RESCUES);
        let (mut kept, mut failed) = (Vec::new(), Vec::<String>::new());
        for donor in &self.room.donors {
            match keep(donor, self.volume, &mut names) {
                Ok(name) => kept.push(name),
                Err(error) => failed.push(format!("some of it cannot be kept: {error}")),
            }
        }
        for file in moved {
            let mut left = file.bytes;
            for part in &file.moves {
                let length = part.length.min(left);
                left -= length;
                if let Err(error) = self.room.donors[part.donor].recover(self.volume, part.to, length) {
                    failed.push(format!("what {} was cannot be read from it: {error}", file.path));
                }
            }
        }
        // Where the device takes some of it and not the rest, that is told by the error.
        let _ = self.volume.sync();
        if !kept.is_empty() {
            let names = kept.join(", ");
            failed.insert(
                0,
                format!("what was moved is also in {names} at the root of its file system"),
            );
        }
        // Where it cannot be read, that is mostly so of all of it, and for one reason.
        let more = failed.len().saturating_sub(MOST_TOLD);
        failed.truncate(MOST_TOLD);
        if more > 0 {
            failed.push(format!("and so {more} more"));
        }
        error.context(failed.join("; "))
    }

    fn note(&mut self, change: impl FnOnce(&mut LayoutResult)) {
        if let Some(kept) = self.all.last_mut() {
            change(kept);
        }
    }

    fn leave(&mut self, why: String) {
        self.note(|kept| *kept.left.entry(why).or_default() += 1);
    }
}

/// Whether an error is not one file's, but of what all of them lie on: then nothing more is moved.
fn ends_all(error: &io::Error) -> bool {
    // EUCLEAN and ESHUTDOWN are what file systems say that have found themselves damaged.
    const OF_ALL: [Errno; 9] = [
        Errno::IO,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::NODEV,
        Errno::NXIO,
        Errno::UCLEAN,
        Errno::SHUTDOWN,
        Errno::NOMEM,
    ];
    OF_ALL
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Why a file stays that cannot be opened or read.
fn not_now(error: &io::Error) -> String {
    match error.kind() {
        // Its owner would be told, and has up to 45 s (`fs.lease-break-time`) to answer.
        io::ErrorKind::WouldBlock => LEASED.to_owned(),
        _ => format!("it cannot be read: {error}"),
    }
}

/// So many names that begin with this one.
fn names(first: &'static str, most: u32) -> impl Iterator<Item = String> {
    (1..=most).map(move |number| match number {
        1 => first.to_owned(),
        _ => format!("{first}-{number}"),
    })
}

/// Keeps a donor under the first of these names that is free.
fn keep(donor: &Donor, volume: &Volume, names: &mut impl Iterator<Item = String>) -> io::Result<String> {
    for name in names {
        match donor.keep(volume, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            kept => return kept.map(|()| name),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// How many of these are one batch.
fn batch(items: &[Item]) -> usize {
    let mut bytes = 0;
    let fit = items.iter().take(BATCH_FILES).take_while(|item| {
        bytes += item.bytes();
        bytes <= BATCH_BYTES
    });
    fit.count().max(1).min(items.len())
}

/// One move. The kernel does not move pages whose buffers are in use (EBUSY), as some are that were just read
/// or written, and may have moved those before them: the rest is written, leaves memory, and is tried again.
fn attempt(file: &Movable, volume: &Volume, donor: &Donor, part: &Move) -> io::Result<()> {
    let mut rest = *part;
    let mut busy = 0;
    loop {
        match file.move_to(volume, donor, rest.start, rest.to, rest.length) {
            Err(error) if busy < ATTEMPTS && error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                busy += 1;
                let contents = file.file()?;
                contents.sync_all()?;
                let _ = advise_dontneed(&contents, rest.start, rest.length);
                drop(contents);
                std::thread::sleep(Duration::from_millis(1 << busy));
                let moved = rest.done(&file.extents()?);
                if moved >= rest.length {
                    return Ok(());
                }
                rest = Move {
                    start: rest.start + moved,
                    to: rest.to + moved,
                    length: rest.length - moved,
                    physical: rest.physical + moved,
                    ..rest
                };
                // Who executes it waits for the move, and is not to wait for the device as well.
                let _ = read(&file.file()?, rest.start, rest.length);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;

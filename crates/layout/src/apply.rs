//! Moving the files.
//!
//! Room for all is taken first, and what it brings is judged by where it lies. Then file after file moves into it, one extent a
//! call. After some of them their data is read back from the device and compared with what it was, and their extents are asked for.
//! Whatever fails, each file is whole, in its old or its new place.

use crate::kept::{Kept, State, Turn};
use crate::moves::{Move, moves};
use crate::order::{Item, Order, Prediction, unless_worthwhile};
use anyhow::{Context, Result};
use headstart_model::FilePath;
use headstart_model::machine::Machine;
use headstart_session::now_unix_ns;
use headstart_store::{KeyDir, Store};
use headstart_system::ext4::moving::{Donor, Movable, Volume, kernel_is_safe};
use headstart_system::memory::memory;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::priority::{Priority, set_io, set_nice};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// This share of a file system stays free: others write, too.
const STAYS_FREE: u64 = 20;
/// With less memory than this nothing more is moved: what is moved goes through it.
const LEAST_MEMORY: u64 = 32 << 20;
/// So many files, or so many bytes, are moved before they are written and compared.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 32 << 20;
/// What the room is called that has the old contents of files which are not what they were.
const RESCUE: &str = "headstart-layout-rescue";
/// So many keys are named in what is kept.
const NAMED: usize = 20;
/// So often a move is tried again.
const ATTEMPTS: u32 = 5;
/// Bytes that are read at once to compare.
const READ: usize = 256 << 10;

/// How it is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Also where it is not worth it by the cost model.
    pub force: bool,
    /// The most bytes that are moved in a second; `None` for as many as the device gives to the least important reader.
    pub rate: Option<u64>,
}

/// Why it ended before all was moved.
enum Halt {
    Asked,
    NoMemory,
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Failed(error.into())
    }
}

/// Does what `orders` say, one file system after the other, and keeps what it came to. SIGINT and SIGTERM end it between two extents;
/// `tell` hears how far it is. What is left undone is in the result; an error is of what concerns all of it.
pub fn apply(
    orders: Vec<Order>,
    machine: &Machine,
    keys: &[KeyDir],
    store: &Store,
    bounds: Bounds,
    tell: &mut dyn FnMut(&Kept),
) -> Result<Vec<Kept>> {
    static STOP: AtomicBool = AtomicBool::new(false);
    match ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)) {
        // It is ours: a process moves files one time after the other.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
        Err(error) => return Err(error).context("cannot watch for signals"),
    }
    kernel_is_safe().map_err(anyhow::Error::msg)?;
    let turn = Turn::take(store)?;
    let mut names: Vec<String> = keys.iter().take(NAMED).map(|key| key.key().to_string()).collect();
    if keys.len() > NAMED {
        names.push(format!("and {} more", keys.len() - NAMED));
    }
    // Where it is refused the work is done all the same.
    let _ = set_nice(19);
    let _ = set_io(Priority::Idle);
    let mut all = Vec::new();
    for order in orders {
        let Some(device) = machine.devices.get(order.device as usize) else {
            continue;
        };
        all.push(Kept {
            keys: names.clone(),
            mount_point: device.mount_point.to_string(),
            state: State::Underway,
            why: None,
            began_unix_ns: now_unix_ns(),
            ended_unix_ns: 0,
            files: 0,
            bytes: 0,
            planned_bytes: order.bytes(),
            to: None,
            before: order.before,
            after: order.before,
            left: order.left.clone(),
        });
        let mut work = Work {
            turn: &turn,
            all: &mut all,
            order: &order,
            machine,
            bounds,
            stop: &STOP,
            tell,
            began: Instant::now(),
        };
        let ended = work.run();
        let (state, why) = match ended {
            Ok(None) => (State::Complete, None),
            Ok(Some(why)) => (State::Declined, Some(why)),
            Err(Halt::Asked) => (State::Stopped, None),
            Err(Halt::NoMemory) => (State::Stopped, Some("memory is short".into())),
            Err(Halt::Failed(error)) => (State::Failed, Some(format!("{error:#}"))),
        };
        if let Some(kept) = all.last_mut() {
            (kept.state, kept.why, kept.ended_unix_ns) = (state, why, now_unix_ns());
        }
        turn.keep(&all)?;
    }
    Ok(all)
}

/// One file system.
struct Work<'a> {
    turn: &'a Turn,
    all: &'a mut Vec<Kept>,
    order: &'a Order,
    machine: &'a Machine,
    bounds: Bounds,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&Kept),
    began: Instant,
}

impl Work<'_> {
    /// `Some`: why nothing was moved.
    fn run(&mut self) -> Result<Option<String>, Halt> {
        let device = &self.machine.devices[self.order.device as usize];
        if let Some(why) = &self.order.declined {
            if !self.bounds.force || device.fstype != "ext4" {
                return Ok(Some(why.clone()));
            }
        }
        let mounts = MountTable::read()?;
        let mount_point = device.mount_point.as_path();
        let volume = match Volume::open(&mounts, mount_point, device.node.as_path()) {
            Ok(volume) => volume,
            Err(why) => return Ok(Some(why)),
        };
        let bytes = self.order.bytes();
        if bytes == 0 {
            return Ok(Some("there is nothing to move".into()));
        }
        let reserve = volume.size()? / STAYS_FREE;
        let free = volume.free()?;
        if free < bytes + reserve {
            return Ok(Some(format!(
                "{bytes} bytes are to be moved, and of {free} that are free {reserve} stay so"
            )));
        }
        let donor = volume
            .donor(bytes)
            .context("cannot take room on the file system")?;
        let predicted = self.order.predict(donor.room(), &device.cost);
        if let Some(why) = unless_worthwhile(&self.order.before, &predicted).filter(|_| !self.bounds.force) {
            return Ok(Some(format!(
                "the free room lies in {} pieces: {why}",
                donor.room().len()
            )));
        }
        let to = donor.room().first().map(|room| room.physical);
        self.note(|kept| kept.to = to);
        self.turn.keep(self.all)?;
        let mut from = 0;
        let order = self.order;
        let mut moved = Batch::default();
        for item in &order.items {
            match self.file(item, from, &mounts, &volume, &donor) {
                Ok(Ok(file)) => moved.push(file),
                Ok(Err(why)) => self.leave(why),
                Err(halt) => {
                    // What was moved before is compared all the same.
                    self.compare(&mut moved, &volume, &donor)?;
                    return Err(halt);
                }
            }
            from += item.bytes();
            if moved.is_full() {
                self.compare(&mut moved, &volume, &donor)?;
            }
        }
        self.compare(&mut moved, &volume, &donor)?;
        if let Some(halt) = self.halt() {
            return Err(halt);
        }
        let after = self.measure(&mounts)?;
        self.note(|kept| kept.after = after);
        Ok(None)
    }

    /// Why it ends here, if it does.
    fn halt(&self) -> Option<Halt> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(Halt::Asked);
        }
        let short = memory().is_ok_and(|memory| memory.available < LEAST_MEMORY);
        short.then_some(Halt::NoMemory)
    }

    fn note(&mut self, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.all.last_mut() {
            change(kept);
        }
    }

    /// Keeps to the rate.
    fn wait(&self) {
        let (Some(rate), Some(kept)) = (self.bounds.rate, self.all.last()) else {
            return;
        };
        let due = Duration::from_secs_f64(kept.bytes as f64 / rate.max(1) as f64);
        while self.began.elapsed() < due && !self.stop.load(Ordering::Relaxed) {
            let left = due.saturating_sub(self.began.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Moves one file to the donor's offset `from` and after it; or says why not.
    fn file(
        &self,
        item: &Item,
        from: u64,
        mounts: &MountTable,
        volume: &Volume,
        donor: &Donor,
    ) -> Result<Result<Moved, String>, Halt> {
        let path = item.facts.path.as_path();
        let expect = Expect {
            inode: Some(item.facts.inode),
            size: Some(item.facts.size),
            mtime_ns: Some(item.facts.mtime_ns),
            generation: (item.facts.generation != 0).then_some(item.facts.generation),
            ..Expect::default()
        };
        let file = match Movable::open(mounts, path, &expect) {
            Ok(file) => file,
            Err(why) => return Ok(Err(why)),
        };
        let extents = file.extents()?;
        let page = u64::from(self.machine.page_size);
        let moves = moves(&item.ranges, item.facts.size, &extents, donor.room(), from, page);
        if moves.is_empty() {
            return Ok(Err("no whole page of it lies in one piece".into()));
        }
        // Written and so protected from writes, a page that a program has mapped tells of its next write by the file's time.
        file.file().sync_data()?;
        let before = sums(&file, &moves)?;
        let mut done = Vec::new();
        for one in &moves {
            match self.halt() {
                Some(halt) if done.is_empty() => return Err(halt),
                // What was moved of it is compared first.
                Some(_) => break,
                None => {}
            }
            match attempt(&file, volume, donor, one) {
                Ok(()) => done.push(*one),
                // Somebody writes it, maps it, or the kernel knows a reason of its own: the file is whole.
                Err(error) if done.is_empty() => {
                    return Ok(Err(format!("the kernel does not move it: {error}")));
                }
                Err(_) => break,
            }
        }
        Ok(Ok(Moved {
            path: item.facts.path.clone(),
            file,
            whole: done.len() == moves.len(),
            moves: done,
            before,
        }))
    }

    /// Writes what was moved to the device, reads it back from there, and compares. The donor still has the old places; where the
    /// contents differ it stays as a file, for it has what they were.
    fn compare(&mut self, batch: &mut Batch, volume: &Volume, donor: &Donor) -> Result<(), Halt> {
        // The first of them commits what was moved of all.
        for moved in &batch.files {
            moved.file.file().sync_all()?;
        }
        for moved in batch.files.drain(..) {
            let compared = moved.compare().map_err(|error| match donor.keep(volume, RESCUE) {
                Ok(()) => error.context(format!(
                    "what was moved is also in {RESCUE} at the root of its file system"
                )),
                Err(failed) => error.context(format!("{RESCUE} cannot be kept: {failed}")),
            });
            match compared? {
                Ok(bytes) => {
                    self.note(|kept| {
                        kept.files += u64::from(moved.whole);
                        kept.bytes += bytes;
                    });
                    if !moved.whole {
                        self.leave(
                            "a part of it stays: the kernel does not move it, or the work was stopped".into(),
                        );
                    }
                }
                Err(why) => self.leave(why),
            }
        }
        batch.bytes = 0;
        if let Some(kept) = self.all.last() {
            (self.tell)(kept);
        }
        self.wait();
        Ok(())
    }

    fn leave(&mut self, why: String) {
        self.note(|kept| *kept.left.entry(why).or_default() += 1);
    }

    /// What reading takes now.
    fn measure(&self, mounts: &MountTable) -> Result<Prediction> {
        let mut placed = Vec::new();
        for item in &self.order.items {
            let expect = Expect {
                inode: Some(item.facts.inode),
                ..Expect::default()
            };
            let path = item.facts.path.as_path();
            let Ok(opened) = headstart_system::open::open_checked(mounts, path, &expect) else {
                continue;
            };
            let extents = headstart_system::extents::extents(opened.fd.as_fd())?;
            for part in item.needed.ranges() {
                placed.extend(crate::order::on_device(&extents, part.start, part.pages()));
            }
        }
        let cost = &self.machine.devices[self.order.device as usize].cost;
        Ok(crate::order::prediction(&placed.into_iter().collect(), cost))
    }
}

/// One move. The kernel does not move pages whose buffers are in use (EBUSY), as some are that were just read or written, and may
/// have moved those before them: the rest is written, leaves memory, and is tried again.
fn attempt(file: &Movable, volume: &Volume, donor: &Donor, one: &Move) -> io::Result<()> {
    let mut rest = *one;
    let mut busy = 0;
    loop {
        match file.move_to(volume, donor, rest.start, rest.to, rest.length) {
            Err(error) if busy < ATTEMPTS && error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                busy += 1;
                file.file().sync_all()?;
                forget(file, &rest);
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
                };
            }
            other => return other,
        }
    }
}

/// What is read next comes from the device, but for pages that a program has mapped.
fn forget(file: &Movable, one: &Move) {
    let _ = fadvise(
        file.file(),
        one.start,
        NonZeroU64::new(one.length),
        Advice::DontNeed,
    );
}

/// Files that were moved and are compared together.
#[derive(Default)]
struct Batch {
    files: Vec<Moved>,
    bytes: u64,
}

impl Batch {
    fn push(&mut self, file: Moved) {
        self.bytes += file.moves.iter().map(|one| one.length).sum::<u64>();
        self.files.push(file);
    }

    fn is_full(&self) -> bool {
        self.files.len() >= BATCH_FILES || self.bytes >= BATCH_BYTES
    }
}

/// A file that was moved.
struct Moved {
    path: FilePath,
    file: Movable,
    moves: Vec<Move>,
    /// Whether these are all that were to be made.
    whole: bool,
    /// Checksums of the data before, of these moves and those that were not made.
    before: Vec<[u8; 32]>,
}

impl Moved {
    /// The bytes that were moved, or why it counts as one that stayed.
    fn compare(&self) -> Result<Result<u64, String>> {
        for one in &self.moves {
            forget(&self.file, one);
        }
        let after = sums(&self.file, &self.moves)?;
        let bytes = self.moves.iter().map(|one| one.length).sum();
        if !self.file.is_unchanged()? {
            // Its writer goes on where it lies now.
            return Ok(Ok(bytes));
        }
        anyhow::ensure!(
            after == self.before[..after.len()],
            "{}: its contents are not what they were: check the file system, and restore the file",
            self.path
        );
        let now = self.file.extents()?;
        Ok(match self.moves.iter().all(|one| one.done(&now) == one.length) {
            true => Ok(bytes),
            false => Err("it does not lie where it was moved to".into()),
        })
    }
}

/// A checksum of the data of each move.
fn sums(file: &Movable, moves: &[Move]) -> Result<Vec<[u8; 32]>> {
    let mut buffer = vec![0; READ];
    let mut sums = Vec::with_capacity(moves.len());
    for one in moves {
        let mut sum = Sha256::new();
        let mut done = 0;
        while done < one.length {
            let most = (one.length - done).min(READ as u64) as usize;
            let read = file.file().read_at(&mut buffer[..most], one.start + done)?;
            if read == 0 {
                break;
            }
            sum.update(&buffer[..read]);
            done += read as u64;
        }
        sums.push(sum.finalize().into());
    }
    Ok(sums)
}

//! Processes that read one block after the other, as many at once as a volume fetches.
//!
//! A volume tells nobody how many blocks it fetches at once. So [`FEW`] begin, and when it is seen that reads
//! wait for a fetch, [`MORE`] join them. A volume that is filled already is noticed by reads that do not
//! wait, and the work ends.

use crate::bare::{call, is_readable};
use crate::syscall;
use crate::system::{end, map, now_ms, now_us};
use crate::text::{Check, MOST_OF_CHECK, crc32, uuid_of_volume};
use crate::touches::Touch;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Processes that begin.
const FEW: usize = 8;
/// Processes that join in each lap: 32 reads at once are three times what the slowest known volumes fetch
/// at once, and what the quickest do.
const MORE: usize = 24;
/// A read that takes so long waits for a fetch; as the probe of devices has it, microseconds.
const SLOW_US: u64 = 5000;
/// So many of them are no accident.
const SURELY: u32 = 4;
/// So many reads in a row without a fetch, and the volume is filled (`crates/replay/src/lazily_filled.rs`).
const FILLED: u32 = 32;
/// So many reads that fail, and none is tried any more.
const BROKEN: u64 = 8;
/// The descriptor of no file: who waits for it sleeps.
const NOTHING: i32 = -1;
/// Bytes that tell which file system is on the device, from its beginning.
const BEGIN: usize = 4096;

/// What a worker tells: reads of the first lap wait, those of the second do, it has ended, all is over.
const WAITS: [u8; 2] = [b'0', b'1'];
const ENDED: u8 = b'e';
const OVER: u8 = b'o';

const SIGKILL: usize = 9;
const SIGCHLD: usize = 17;
const PR_SET_PDEATHSIG: usize = 1;
const O_CLOEXEC: usize = 0o2000000;

/// What is to be read.
pub struct Work {
    /// The device's descriptor.
    pub device: usize,
    /// Bytes of a touch.
    pub block: usize,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// What is read and compared, first.
    pub checks: &'static [Check],
    /// Where blocks are read, then.
    pub touches: &'static [Touch],
}

/// What was done.
pub struct Done {
    /// Touches that came back.
    pub read: u64,
    /// Those of them that waited for a fetch.
    pub slow: u64,
    /// Bytes read, also of checks.
    pub bytes: u64,
    /// Why no more were.
    pub end: End,
}

/// Why it ended.
#[derive(Clone, Copy)]
pub enum End {
    /// All is read.
    All,
    /// The volume was filled before.
    Filled,
    /// The time was up.
    TimeUp,
}

impl End {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            End::All => "all",
            End::Filled => "filled",
            End::TimeUp => "time-up",
        }
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            End::All => "that is all",
            End::Filled => "the volume is filled",
            End::TimeUp => "the time was up",
        }
    }
}

/// Why it could not.
pub enum Failed {
    /// No process can be started.
    NoProcess,
    /// The UUID on the device is another.
    OtherFileSystem,
    /// A check fails.
    OtherContents {
        /// Where.
        offset: u64,
    },
    /// The device cannot be read.
    Unreadable {
        /// How many reads failed.
        errors: u64,
        /// The error number of the last.
        errno: u64,
    },
}

/// What all processes share.
struct Shared {
    next: AtomicU32,
    read: AtomicU64,
    slow: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    errno: AtomicU64,
    /// Reads that waited, by lap.
    waited: [AtomicU32; 2],
    /// Reads in a row that did not.
    quick: AtomicU32,
    /// How many of the superblock and the checks are compared.
    compared: AtomicU32,
    /// What ends it, `GOES_ON` until then.
    over: AtomicU32,
    /// Which check failed.
    wrong: AtomicU64,
}

const GOES_ON: u32 = 0;
const IS_FILLED: u32 = 1;
const IS_OTHER: u32 = 2;
const HAS_OTHER_CONTENTS: u32 = 3;
const IS_BROKEN: u32 = 4;

/// Where a process reads to. Each has its own, for memory that is not mapped as shared is copied by a fork.
#[repr(C, align(4096))]
struct Buffer(UnsafeCell<[u8; MOST_OF_CHECK as usize]>);
// SAFETY: a process has one thread.
unsafe impl Sync for Buffer {}
static BUFFER: Buffer = Buffer(UnsafeCell::new([0; MOST_OF_CHECK as usize]));

impl Work {
    /// Reads until all is read, the volume proves filled or another, or the time is up.
    pub fn run(&self, until_ms: u64) -> Result<Done, Failed> {
        let shared: &Shared = map::<Shared>().ok_or(Failed::NoProcess)?;
        let mut pipe = [0i32; 2];
        // SAFETY: a place for two descriptors.
        if unsafe { call(syscall::PIPE2, [pipe.as_mut_ptr() as usize, O_CLOEXEC, 0, 0, 0]) } < 0 {
            return Err(Failed::NoProcess);
        }
        let [told, tell] = pipe.map(|descriptor| descriptor as usize);
        let mut team = Team {
            processes: [0; FEW + 2 * MORE],
            count: 0,
            working: 0,
        };
        team.start(FEW, || self.work(shared, tell, None));
        if team.working == 0 {
            return Err(Failed::NoProcess);
        }
        let mut in_time = true;
        while team.working > 0 && shared.over.load(Ordering::Relaxed) == GOES_ON {
            let left_ms = until_ms.saturating_sub(now_ms());
            in_time = left_ms > 0 && is_readable(told as i32, left_ms as i64);
            if !in_time {
                break;
            }
            let mut words = [0u8; 64];
            // SAFETY: room for so many bytes.
            let count = unsafe {
                call(
                    syscall::READ,
                    [told, words.as_mut_ptr() as usize, words.len(), 0, 0],
                )
            };
            for word in words.iter().take(usize::try_from(count).unwrap_or(0)) {
                match word {
                    &ENDED => team.working -= 1,
                    &OVER => {}
                    lap => team.start(MORE, || self.work(shared, tell, Some(u32::from(lap - WAITS[0])))),
                }
            }
        }
        team.kill();
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let over = shared.over.load(Ordering::Relaxed);
        match over {
            IS_OTHER => return Err(Failed::OtherFileSystem),
            HAS_OTHER_CONTENTS => {
                let offset = number(&shared.wrong);
                return Err(Failed::OtherContents { offset });
            }
            IS_BROKEN => {
                let (errors, errno) = (number(&shared.errors), number(&shared.errno));
                return Err(Failed::Unreadable { errors, errno });
            }
            _ => {}
        }
        Ok(Done {
            read: number(&shared.read),
            slow: number(&shared.slow),
            bytes: number(&shared.bytes),
            end: match (over, in_time) {
                (IS_FILLED, _) => End::Filled,
                (_, true) => End::All,
                (_, false) => End::TimeUp,
            },
        })
    }

    /// What a process does: the superblock, the checks, the touches. One that joined for a lap ends with it.
    fn work(&self, shared: &Shared, tell: usize, lap: Option<u32>) -> ! {
        // Whoever reads what this program says waits for no device.
        for descriptor in (0..3).filter(|it| *it != self.device && *it != tell) {
            // SAFETY: this process says nothing.
            unsafe { call(syscall::CLOSE, [descriptor, 0, 0, 0, 0]) };
        }
        while shared.over.load(Ordering::Relaxed) == GOES_ON {
            let number = shared.next.fetch_add(1, Ordering::Relaxed) as usize;
            let is_own_lap = match number.checked_sub(1 + self.checks.len()) {
                Some(number) => match self.touches.get(number) {
                    Some(touch) => {
                        self.touch(shared, tell, touch);
                        lap.is_none_or(|lap| lap == touch.lap)
                    }
                    None => false,
                },
                None => {
                    self.check(shared, tell, number);
                    true
                }
            };
            if !is_own_lap {
                break;
            }
        }
        self::tell(tell, ENDED);
        end(0)
    }

    fn touch(&self, shared: &Shared, tell: usize, touch: &Touch) {
        match self.read(shared, tell, touch.offset, self.block, touch.lap) {
            Some(is_quick) => {
                shared.read.fetch_add(1, Ordering::Relaxed);
                if !is_quick {
                    shared.slow.fetch_add(1, Ordering::Relaxed);
                    shared.quick.store(0, Ordering::Relaxed);
                } else if shared.quick.fetch_add(1, Ordering::Relaxed) + 1 >= FILLED {
                    // The process of a check may be behind all others, and the volume may prove to be
                    // another.
                    while shared.over.load(Ordering::Relaxed) == GOES_ON && !self.is_compared(shared) {
                        is_readable(NOTHING, 1);
                    }
                    over(shared, tell, IS_FILLED);
                }
            }
            // Whoever needs it will be told.
            None if shared.errors.load(Ordering::Relaxed) >= BROKEN => over(shared, tell, IS_BROKEN),
            None => {}
        }
    }

    /// Whether the volume is known to be the one of the list.
    fn is_compared(&self, shared: &Shared) -> bool {
        shared.compared.load(Ordering::Acquire) as usize > self.checks.len()
    }

    fn check(&self, shared: &Shared, tell: usize, number: usize) {
        self.compare(shared, tell, number);
        shared.compared.fetch_add(1, Ordering::Release);
    }

    fn compare(&self, shared: &Shared, tell: usize, number: usize) {
        let Some(check) = number.checked_sub(1).and_then(|number| self.checks.get(number)) else {
            let is_read = self.read(shared, tell, 0, BEGIN, 0).is_some();
            if !is_read || uuid_of_volume(self.bytes(BEGIN)) != Some(self.uuid) {
                over(shared, tell, if is_read { IS_OTHER } else { IS_BROKEN });
            }
            return;
        };
        let length = check.span.length as usize;
        let is_read = self.read(shared, tell, check.span.start, length, 0).is_some();
        if !is_read || crc32(self.bytes(length)) != check.crc {
            shared.wrong.store(check.span.start, Ordering::Relaxed);
            over(shared, tell, HAS_OTHER_CONTENTS);
        }
    }

    /// Reads; whether without waiting for a fetch. `None` if not all could be read.
    fn read(&self, shared: &Shared, tell: usize, offset: u64, length: usize, lap: u32) -> Option<bool> {
        let begun = now_us();
        let arguments = [self.device, BUFFER.0.get() as usize, length, offset as usize, 0];
        // SAFETY: `length` is a block's or a check's, neither of which is larger than the buffer.
        let read = unsafe { call(syscall::PREAD64, arguments) };
        if read != length as isize {
            shared
                .errno
                .store(read.min(0).unsigned_abs() as u64, Ordering::Relaxed);
            shared.errors.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
        let is_quick = now_us().saturating_sub(begun) < SLOW_US;
        if let (false, Some(waited), Some(word)) =
            (is_quick, shared.waited.get(lap as usize), WAITS.get(lap as usize))
        {
            if waited.fetch_add(1, Ordering::Relaxed) + 1 == SURELY {
                self::tell(tell, *word);
            }
        }
        Some(is_quick)
    }

    /// What was read.
    fn bytes(&self, length: usize) -> &[u8] {
        // SAFETY: this process has one thread, and nothing is read while it looks.
        let bytes: &[u8; MOST_OF_CHECK as usize] = unsafe { &*BUFFER.0.get() };
        bytes.get(..length).unwrap_or_default()
    }
}

/// The processes that read.
struct Team {
    processes: [isize; FEW + 2 * MORE],
    count: usize,
    working: usize,
}

impl Team {
    /// Starts so many more, as far as they can be had.
    fn start(&mut self, many: usize, work: impl Fn()) {
        // SAFETY: no arguments.
        let parent = unsafe { call(syscall::GETPID, [0; 5]) };
        for _ in 0..many {
            let Some(place) = self.processes.get_mut(self.count) else {
                return;
            };
            // SAFETY: forks; memory is not shared, but for what was mapped so.
            let process = unsafe { call(syscall::CLONE, [SIGCHLD, 0, 0, 0, 0]) };
            if process == 0 {
                // SAFETY: asks for a signal when the parent ends, as it does by a signal itself.
                unsafe { call(syscall::PRCTL, [PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0]) };
                // SAFETY: no arguments.
                if unsafe { call(syscall::GETPPID, [0; 5]) } == parent {
                    work();
                }
                end(0)
            }
            if process < 0 {
                return;
            }
            *place = process;
            self.count += 1;
            self.working += 1;
        }
    }

    /// Ends them. One that waits for the device ends when that answers; nobody waits for it.
    fn kill(&self) {
        for process in self.processes.iter().take(self.count) {
            // SAFETY: a child of this process, which has waited for none.
            unsafe { call(syscall::KILL, [*process as usize, SIGKILL, 0, 0, 0]) };
        }
    }
}

fn over(shared: &Shared, descriptor: usize, why: u32) {
    let first = shared
        .over
        .compare_exchange(GOES_ON, why, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() {
        tell(descriptor, OVER);
    }
}

fn tell(descriptor: usize, word: u8) {
    // SAFETY: one byte.
    unsafe { call(syscall::WRITE, [descriptor, &raw const word as usize, 1, 0, 0]) };
}

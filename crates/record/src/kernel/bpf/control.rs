//! Scope watch: what is shared with the BPF programs while they run.

use super::ring::Mapping;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Starts that are recorded at a time: `SLOTS` of common.h.
pub(crate) const SLOTS: usize = 32;

/// Starts of those that take all that is executed in a control group: `SESSIONS` of common.h.
const MOST_SESSIONS: usize = 4;

/// A slot that is not to be taken yet: `ENDED` of common.h.
const ENDED: u32 = u32::MAX;

/// `starts` of common.h.
pub(crate) struct Control(pub(super) Mapping);

/// The words of it.
const ACTIVE: usize = 0;
const GENERATION: usize = 1;
const UNKNOWN_LEFT: usize = 2;
const NAMESPACES: usize = 3;
const WITHOUT_SLOT: usize = 5;
const WITHOUT_TURN: usize = 6;
const FOREIGN: usize = 7;
const NUMBERS: usize = 8;
const ANSWERED: usize = NUMBERS + SLOTS;
/// Two words each.
const CGROUPS: usize = ANSWERED + SLOTS;
const USERS: usize = CGROUPS + 2 * SLOTS;
const LEADERS: usize = USERS + SLOTS;
const GIVEN_LEFT: usize = LEADERS + SLOTS;
const CLAIMS: usize = GIVEN_LEFT + 1;
const IN_SESSIONS: usize = CLAIMS + SLOTS;
/// Two words each.
const SESSION_GROUPS: usize = IN_SESSIONS + 1;
const SESSIONS: usize = SESSION_GROUPS + 2 * MOST_SESSIONS;

impl Control {
    fn word(&self, index: usize) -> &AtomicU32 {
        self.0.half_word(index * size_of::<u32>())
    }

    pub(super) fn set_namespaces(&self) {
        let namespace_of =
            |process: &str| fs::metadata(format!("/proc/{process}/ns/mnt")).map_or(0, |ns| ns.ino());
        for (index, process) in ["self", "1"].iter().enumerate() {
            self.word(NAMESPACES + index)
                .store(namespace_of(process) as u32, Ordering::Relaxed);
        }
    }

    /// Takes a slot for a start that is recorded, and gives its number; `None` if all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let generation = (self.word(GENERATION).fetch_add(1, Ordering::Relaxed) + 1) & 0x3ff_ffff;
        let slot = (0..SLOTS).find(|slot| self.claim(*slot))?;
        let number = (generation + 1) * SLOTS as u32 + slot as u32;
        self.word(ACTIVE).fetch_add(1, Ordering::Relaxed);
        self.be_in_any_group(number);
        // Whoever asks for operations has a bound of its own.
        self.word(USERS + slot).store(0, Ordering::Relaxed);
        self.word(LEADERS + slot).store(0, Ordering::Relaxed);
        self.word(NUMBERS + slot).store(number, Ordering::Relaxed);
        self.record(number);
        Some(number)
    }

    /// Takes a free slot from all others: `claim` of common.h.
    fn claim(&self, slot: usize) -> bool {
        if self.word(NUMBERS + slot).load(Ordering::Relaxed) != 0 {
            return false;
        }
        let claims = self.word(CLAIMS + slot);
        let is_alone = claims.fetch_add(1, Ordering::AcqRel) == 0;
        if !is_alone {
            claims.fetch_sub(1, Ordering::Release);
        }
        is_alone
    }

    /// A user whose processes have executed something in the start in this slot: by `note_user` of watch.h.
    pub(crate) fn user(&self, slot: usize) -> u32 {
        self.word(USERS + slot).load(Ordering::Relaxed)
    }

    /// What this start executes is part of it, in whichever control group.
    pub(crate) fn be_in_any_group(&self, number: u32) {
        self.set_long(CGROUPS + 2 * slot_of(number), 0);
    }

    /// Sets a number of two words.
    fn set_long(&self, index: usize, value: u64) {
        self.0
            .word(index * size_of::<u32>())
            .store(value, Ordering::Relaxed);
    }

    /// All that is executed in the control group with this number, or below it, is part of this start, which
    /// is recorded; false where there are as many such starts as there may be.
    pub(crate) fn add_session(&self, group: u64, number: u32) -> bool {
        let is_free = |index: &usize| self.word(SESSIONS + index).load(Ordering::Relaxed) == 0;
        let Some(free) = (0..MOST_SESSIONS).find(is_free) else {
            return false;
        };
        self.be_in_any_group(number);
        self.set_long(SESSION_GROUPS + 2 * free, group);
        self.word(SESSIONS + free).store(number, Ordering::Release);
        self.word(IN_SESSIONS).fetch_add(1, Ordering::Relaxed);
        true
    }

    /// This start is over, if it was such a one.
    pub(crate) fn end_session(&self, number: u32) {
        for index in 0..MOST_SESSIONS {
            let session = self.word(SESSIONS + index);
            if session.load(Ordering::Relaxed) == number {
                session.store(0, Ordering::Relaxed);
                self.word(IN_SESSIONS).fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The start is recorded: what it executes is part of it.
    pub(crate) fn record(&self, number: u32) {
        self.word(ANSWERED + slot_of(number)).store(1, Ordering::Relaxed);
    }

    /// Nothing more of this start is sent; its slot stays taken.
    pub(crate) fn end(&self, number: u32) {
        let slot = self.word(NUMBERS + slot_of(number));
        let ended = slot.compare_exchange(number, ENDED, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            self.word(ACTIVE).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Another start may have the slot.
    pub(crate) fn free(&self, slot: usize) {
        self.word(ANSWERED + slot).store(0, Ordering::Relaxed);
        let number = self.word(NUMBERS + slot);
        // Nobody but this process changes it from that.
        let freed = number.compare_exchange(ENDED, 0, Ordering::Release, Ordering::Relaxed);
        if freed.is_ok() {
            self.word(CLAIMS + slot).fetch_sub(1, Ordering::Release);
        }
    }

    /// So many more starts of programs of which nothing is known may begin, up to `most`; and of what
    /// interpreters are given that know some.
    pub(crate) fn add_unknown(&self, more: u32, most: u32) {
        for word in [UNKNOWN_LEFT, GIVEN_LEFT].map(|word| self.word(word)) {
            let room = i64::from(most) - i64::from(word.load(Ordering::Relaxed) as i32);
            let more = i64::from(more).min(room).max(0) as u32;
            word.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// None of them may begin for now.
    pub(crate) fn take_turns(&self) {
        for word in [UNKNOWN_LEFT, GIVEN_LEFT] {
            self.word(word).store(0, Ordering::Relaxed);
        }
    }

    /// How many of them may begin now: of those of which fewer may.
    pub(crate) fn unknown_left(&self) -> i32 {
        let left = [UNKNOWN_LEFT, GIVEN_LEFT].map(|word| self.word(word).load(Ordering::Relaxed) as i32);
        left[0].min(left[1])
    }

    /// Starts that were not recorded: for want of a slot, of a turn, and in another mount namespace.
    pub(crate) fn left_out(&self) -> [u32; 3] {
        [WITHOUT_SLOT, WITHOUT_TURN, FOREIGN].map(|word| self.word(word).load(Ordering::Relaxed))
    }
}

/// The slot of a start.
pub(crate) fn slot_of(number: u32) -> usize {
    number as usize % SLOTS
}

//! What users other than root may take of a recording of everybody: together half of what it keeps, and any
//! group of them a quarter. Beyond that their uses are left out, and the recording teaches: whoever works
//! beside a boot cannot keep it from being learned.

use crate::limits::{CHUNKS, FILE_BYTES, FILE_IDS, FILES, USES};
use std::ops::{AddAssign, Sub};

/// Groups of users, and root, as the back-end tells them apart.
const GROUPS: usize = 256;

/// What is taken of the tables of files and their uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub files: usize,
    pub ids: usize,
    /// Bytes of the files' paths.
    pub bytes: usize,
    pub chunks: usize,
    pub uses: usize,
}

impl Taken {
    /// Whether it is less than one part in so many of all there is room for.
    fn fits(self, parts: usize) -> bool {
        self.files < FILES / parts
            && self.ids < FILE_IDS / parts
            && self.bytes < FILE_BYTES / parts
            && self.chunks < CHUNKS / parts
            && self.uses < USES / parts
    }
}

impl Sub for Taken {
    type Output = Taken;

    fn sub(self, before: Taken) -> Taken {
        Taken {
            files: self.files - before.files,
            ids: self.ids - before.ids,
            bytes: self.bytes - before.bytes,
            chunks: self.chunks - before.chunks,
            uses: self.uses - before.uses,
        }
    }
}

impl AddAssign for Taken {
    fn add_assign(&mut self, more: Taken) {
        self.files += more.files;
        self.ids += more.ids;
        self.bytes += more.bytes;
        self.chunks += more.chunks;
        self.uses += more.uses;
    }
}

/// Who has taken how much.
pub(super) struct Shares {
    others: Taken,
    groups: Vec<Taken>,
}

impl Shares {
    /// Nobody has taken anything.
    pub(super) fn new() -> Shares {
        Shares {
            others: Taken::default(),
            groups: vec![Taken::default(); GROUPS],
        }
    }

    /// Whether a user of this group may take more; root, who is group 0, always.
    pub(super) fn has_room(&self, user: u8) -> bool {
        user == 0 || (self.others.fits(2) && self.groups[usize::from(user)].fits(4))
    }

    /// Notes what a user has taken.
    pub(super) fn charge(&mut self, user: u8, more: Taken) {
        if user != 0 {
            self.others += more;
            self.groups[usize::from(user)] += more;
        }
    }
}

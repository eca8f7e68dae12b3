//! Where a file is used in very many places, such as the memory of a virtual machine that is resumed, its
//! older uses are kept by windows: a row for each 16 pages instead of each use.

use crate::limits::{USES, WINDOWS};
use headstart_model::sort::Sort;
use headstart_model::trace::Use;
use headstart_model::uses::{WINDOW_PAGES, WindowUse};

/// A file with fewer uses in what is gathered keeps them as they are: no more would be gained by it than by
/// a file that a start maps as a whole.
const MANY: usize = 1024;

/// Gathering goes on as long as it frees so many uses: else each further use would sort all rows.
const LEAST_FREED: usize = USES / 16;

/// In how many windows more than one a use lies. The parts of a long one, such as a read of all of a file,
/// are more rows than it is.
fn further_windows(used: &Use) -> u64 {
    let last = used.start.saturating_add(u64::from(used.pages).saturating_sub(1));
    last / WINDOW_PAGES - used.start / WINDOW_PAGES
}

/// Sorts uses, or rows. One function for all orders: a sort is some kilobytes of code.
fn sort(uses: &mut [Use], key: fn(&Use) -> (u64, u64)) {
    uses.sort_small_by_key(key);
}

/// By time.
fn time(used: &Use) -> (u64, u64) {
    (used.time_ns, 0)
}

/// By what tells one row from another: its file, how it was used, and its window.
fn place(row: &Use) -> (u64, u64) {
    (u64::from(row.file) << 8 | row.kind as u64, row.start)
}

/// First uses, as [`headstart_model::Trace`] has them.
#[derive(Default)]
pub(super) struct Uses {
    uses: Vec<Use>,
    /// A row for each window, ordered by [`place`]: `start` is the window's first page, and `pages` has a bit
    /// for each page.
    windows: Vec<Use>,
    /// All uses that were ever added.
    added: usize,
    /// Gathering frees too little by now.
    is_full: bool,
}

impl Uses {
    /// How many uses were added; those that are gathered by now, too.
    pub(super) fn added(&self) -> usize {
        self.added
    }

    /// About how much memory they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.uses.len() * 48 + self.windows.len() * 32
    }

    /// Adds a use; `false` if there is no room.
    pub(super) fn add(&mut self, used: Use) -> bool {
        if self.uses.len() >= USES || self.uses.len() + self.windows.len() >= WINDOWS {
            self.gather();
            if self.is_full {
                return false;
            }
        }
        self.uses.push(used);
        self.added += 1;
        true
    }

    /// Gathers the older half by windows, of files that have many of them. The younger half stays as it is:
    /// it tells when the start was over.
    fn gather(&mut self) {
        if self.is_full {
            return;
        }
        let older = self.uses.len() / 2;
        let files = self.uses.iter().map(|used| used.file as usize + 1).max();
        let mut counts = vec![0usize; files.unwrap_or(0)];
        for used in &self.uses[..older] {
            counts[used.file as usize] += 1;
        }
        // What is mapped around a fault may lie in two windows. Where room is short no use becomes two rows.
        let further = u64::from(self.uses.len() + self.windows.len() + older <= WINDOWS);
        let gathered = |used: &Use| counts[used.file as usize] >= MANY && further_windows(used) <= further;
        let rows = self.uses[..older].iter().filter(|used| gathered(used));
        self.windows.reserve_exact(rows.clone().count());
        for used in rows {
            self.windows.extend(WindowUse::of(used).map(|row| Use {
                start: row.window * WINDOW_PAGES,
                pages: u32::from(row.pages),
                ..*used
            }));
        }
        let mut index = 0;
        self.uses.retain(|used| {
            index += 1;
            index > older || !gathered(used)
        });
        sort(&mut self.windows, place);
        self.windows.dedup_by(|next, kept| {
            let is_same = place(next) == place(kept);
            if is_same {
                kept.pages |= next.pages;
                if next.time_ns < kept.time_ns {
                    (kept.time_ns, kept.process) = (next.time_ns, next.process);
                }
            }
            is_same
        });
        let rows = self.uses.len() + self.windows.len();
        self.is_full = self.uses.len() > USES - LEAST_FREED || rows > WINDOWS - LEAST_FREED;
    }

    /// Both, each ordered by time, of files that have an index now.
    pub(super) fn finish(mut self, index: &[Option<u32>]) -> (Vec<Use>, Vec<WindowUse>) {
        let is_known = |file: &mut u32| match index.get(*file as usize).copied().flatten() {
            Some(known) => {
                *file = known;
                true
            }
            None => false,
        };
        for uses in [&mut self.uses, &mut self.windows] {
            uses.retain_mut(|used| is_known(&mut used.file));
            // Each processor's events come in order, but not those of several.
            sort(uses, time);
        }
        let windows = self.windows.into_iter().map(|row| WindowUse {
            time_ns: row.time_ns,
            process: row.process,
            file: row.file,
            window: row.start / WINDOW_PAGES,
            pages: row.pages as u16,
            kind: row.kind,
        });
        (self.uses, windows.collect())
    }
}

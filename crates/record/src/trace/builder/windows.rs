//! Where a file is used in very many places, such as the memory of a virtual machine that is resumed, its
//! older uses are kept by windows: a row for each 16 pages instead of each use.

use crate::limits::{USES, WINDOWS};
use headstart_model::trace::Use;
use headstart_model::window::{WINDOW_PAGES, WindowUse};

/// A file with fewer uses in what is gathered keeps them as they are: no more would be gained by it than by
/// a file that a start maps as a whole.
const MANY: usize = 1024;

/// Gathering goes on as long as it frees so many uses: else each further use would sort all rows.
const LEAST_FREED: usize = USES / 16;

/// Whether a use lies in one window, or in two as what is mapped around a fault may. The parts of a longer
/// one, such as a read of all of a file, are more rows than it is.
fn is_short(used: &Use) -> bool {
    let last = used.start.saturating_add(u64::from(used.pages).saturating_sub(1));
    last / WINDOW_PAGES - used.start / WINDOW_PAGES <= 1
}

/// First uses, as [`headstart_model::Trace`] has them.
#[derive(Default)]
pub(super) struct Uses {
    uses: Vec<Use>,
    /// By place; ordered by that up to the last gathering.
    windows: Vec<WindowUse>,
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
        let gathered = |used: &Use| counts[used.file as usize] >= MANY && is_short(used);
        let rows = self.uses[..older].iter().filter(|used| gathered(used));
        self.windows.reserve_exact(rows.clone().count());
        self.windows.extend(rows.flat_map(WindowUse::of));
        let mut index = 0;
        self.uses.retain(|used| {
            index += 1;
            index > older || !gathered(used)
        });
        // Stable sorting is the quick one here: all but the new rows are in order.
        self.windows.sort_by_key(WindowUse::place);
        self.windows.dedup_by(|next, kept| kept.takes_in(next));
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
        self.uses.retain_mut(|used| is_known(&mut used.file));
        self.windows.retain_mut(|row| is_known(&mut row.file));
        // Each processor's events come in order, but not those of several.
        self.uses.sort_by_key(|used| used.time_ns);
        self.windows
            .sort_unstable_by_key(|row| (row.time_ns, row.place()));
        (self.uses, self.windows)
    }
}

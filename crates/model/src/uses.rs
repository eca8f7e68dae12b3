//! First uses of pages, and those of a file that is used in very many places, such as the memory of a virtual
//! machine that is resumed: by windows of 16 pages, a bit for each page, where a row for each would be too
//! many.

use serde::{Deserialize, Serialize};

/// The first use of a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// When.
    pub time_ns: u64,
    /// Index into [`Trace::processes`](crate::Trace::processes).
    pub process: u32,
    /// Index into [`Trace::files`](crate::Trace::files).
    pub file: u32,
    /// First page.
    pub start: u64,
    /// Number of pages, at least 1.
    pub pages: u32,
    /// How the pages were used.
    pub kind: UseKind,
}

/// How pages were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UseKind {
    /// Asked for by read(2) and its kin: exact.
    Read,
    /// Mapped around a fault: up to 16 pages of which at least one was touched, nobody knows which.
    Map,
    /// Touched, and found by a fault: exact.
    Fault,
    /// Entered the page cache: no evidence of use.
    Add,
    /// Mapped around a fault of which the page is known, and told as [`UseKind::Fault`]: others of these up
    /// to 16 may have been touched as well.
    Around,
}

/// Pages of a window: what Linux maps around a fault at once, with pages of 4 KiB.
pub const WINDOW_PAGES: u64 = 16;

/// The first uses of pages of one window of a file, all of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowUse {
    /// When the first of them was used.
    pub time_ns: u64,
    /// Index into [`Trace::processes`](crate::Trace::processes): who used that.
    pub process: u32,
    /// Index into [`Trace::files`](crate::Trace::files).
    pub file: u32,
    /// The window: it begins at page [`WINDOW_PAGES`] times this.
    pub window: u64,
    /// The pages used, at least one; the lowest bit is the window's first page.
    pub pages: u16,
    /// How they were used.
    pub kind: UseKind,
}

impl WindowUse {
    /// The parts of a use by windows.
    pub fn of(used: &Use) -> impl Iterator<Item = WindowUse> + use<> {
        let used = *used;
        let end = used.start.saturating_add(u64::from(used.pages));
        let windows = used.start / WINDOW_PAGES..end.div_ceil(WINDOW_PAGES);
        windows.map(move |window| {
            let first = window * WINDOW_PAGES;
            let from = used.start.max(first) - first;
            let to = (end - first).min(WINDOW_PAGES);
            WindowUse {
                time_ns: used.time_ns,
                process: used.process,
                file: used.file,
                window,
                pages: (u16::MAX >> (WINDOW_PAGES - (to - from))) << from,
                kind: used.kind,
            }
        })
    }

    /// Number of runs of pages.
    pub fn runs(&self) -> usize {
        (self.pages & !(self.pages << 1)).count_ones() as usize
    }

    /// The runs of pages, ascending.
    pub fn uses(self) -> impl Iterator<Item = Use> {
        let mut left = self.pages;
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let bit = left.trailing_zeros();
                let length = (left >> bit).trailing_ones();
                left &= !((u16::MAX >> (16 - length)) << bit);
                Use {
                    time_ns: self.time_ns,
                    process: self.process,
                    file: self.file,
                    start: self.window.saturating_mul(WINDOW_PAGES) + u64::from(bit),
                    pages: length,
                    kind: self.kind,
                }
            })
        })
    }

    /// The pages from the first used to the last, as one run: of an exact use only that some page of these
    /// was used.
    pub fn spanned(self) -> WindowUse {
        if self.pages == 0 || self.runs() == 1 {
            return self;
        }
        let (first, behind) = (self.pages.trailing_zeros(), 16 - self.pages.leading_zeros());
        WindowUse {
            pages: (u16::MAX >> (16 - (behind - first))) << first,
            kind: match self.kind {
                UseKind::Read | UseKind::Fault => UseKind::Map,
                kind => kind,
            },
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_not_exact_any_more_does_not_claim_to_be() {
        let mut row = WindowUse::of(&testing::used(3, 0, 18, 2)).next().unwrap();
        assert_eq!((row.window, row.pages, row.runs()), (1, 0b1100, 1));
        assert_eq!(row.spanned(), row);
        row.pages |= 0b1_0000_0000;
        assert_eq!(row.runs(), 2);
        let spanned: Vec<Use> = row.spanned().uses().collect();
        assert_eq!(spanned.len(), 1);
        assert_eq!(
            (spanned[0].start, spanned[0].pages, spanned[0].kind),
            (18, 7, UseKind::Map)
        );
    }

    proptest! {
        #[test]
        fn windows_hold_the_pages_of_all_uses(uses in prop::collection::vec((0u64..200, 1u32..70), 1..30)) {
            let mut rows: Vec<WindowUse> = Vec::new();
            for (start, pages) in &uses {
                for row in WindowUse::of(&testing::used(0, 0, *start, *pages)) {
                    match rows.iter_mut().find(|known| known.window == row.window) {
                        Some(known) => known.pages |= row.pages,
                        None => rows.push(row),
                    }
                }
            }
            let pages = |start: u64, pages: u32| start..start + u64::from(pages);
            let wanted: BTreeSet<u64> = uses.iter().flat_map(|(s, n)| pages(*s, *n)).collect();
            let runs: Vec<Use> = rows.iter().flat_map(|row| row.uses()).collect();
            let got: BTreeSet<u64> = runs.iter().flat_map(|run| pages(run.start, run.pages)).collect();
            prop_assert_eq!(runs.iter().map(|run| run.pages as usize).sum::<usize>(), got.len());
            prop_assert_eq!(rows.iter().map(WindowUse::runs).sum::<usize>(), runs.len());
            prop_assert_eq!(got, wanted);
        }
    }
}

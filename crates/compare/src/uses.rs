//! When pages of files were first used.

use headstart_model::{FilePath, Trace};
use std::collections::{BTreeMap, HashMap};

/// First uses by file and page.
pub struct Uses<'a> {
    by_path: HashMap<&'a FilePath, usize>,
    /// Of each file: the page behind the last, and when, by the first page.
    files: Vec<BTreeMap<u64, (u64, u64)>>,
    page: u64,
}

impl<'a> Uses<'a> {
    /// Collects the uses of a trace.
    pub fn from_trace(trace: &'a Trace) -> Uses<'a> {
        let files = trace.files.iter().enumerate();
        let mut uses = Uses {
            by_path: files.map(|(index, file)| (&file.path, index)).collect(),
            files: vec![BTreeMap::new(); trace.files.len()],
            page: u64::from(trace.meta.page_size.max(1)),
        };
        // By time: what was used before is not used first again.
        for used in trace.all_uses() {
            if let Some(pages) = uses.files.get_mut(used.file as usize) {
                insert(
                    pages,
                    used.start,
                    used.start.saturating_add(used.pages.into()),
                    used.time_ns,
                );
            }
        }
        uses
    }

    /// When the first of these bytes of a file was used.
    pub fn first_use_ns(&self, path: &FilePath, offset: u64, length: u64) -> Option<u64> {
        let pages = self.files.get(*self.by_path.get(path)?)?;
        let (first, end) = (
            offset / self.page,
            offset.saturating_add(length).div_ceil(self.page),
        );
        let before = pages
            .range(..first)
            .next_back()
            .filter(|(_, (until, _))| *until > first);
        let uses = before.into_iter().chain(pages.range(first..end));
        uses.map(|(_, (_, time))| *time).min()
    }
}

fn insert(pages: &mut BTreeMap<u64, (u64, u64)>, mut start: u64, end: u64, time: u64) {
    while start < end {
        if let Some((_, (until, _))) = pages
            .range(..=start)
            .next_back()
            .filter(|(_, (until, _))| *until > start)
        {
            start = *until;
            continue;
        }
        let until = pages.range(start..end).next().map_or(end, |(next, _)| *next);
        pages.insert(start, (until, time));
        start = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_use_of_a_page_counts() {
        let mut pages = BTreeMap::new();
        insert(&mut pages, 4, 8, 10);
        insert(&mut pages, 0, 12, 20);
        insert(&mut pages, 2, 6, 30);
        let uses: Vec<_> = pages.into_iter().collect();
        assert_eq!(uses, [(0, (4, 20)), (4, (8, 10)), (8, (12, 20))]);
    }
}

//! How much of what a start used can be read ahead at all.

use crate::run::pages_of;
use headstart_model::outcome::Used;
use headstart_model::trace::{FileState, UseKind};
use headstart_model::{GrowingSet, Trace};

/// Counts the pages that a start used; what was only mapped around a touched page need not have been.
pub fn used(trace: &Trace) -> Used {
    let page_size = u64::from(trace.meta.page_size);
    let mut seen = vec![GrowingSet::default(); trace.files.len()];
    let mut total = Used::default();
    for used in trace.all_uses().filter(|used| used.kind != UseKind::Around) {
        let file = &trace.files[used.file as usize];
        let unreachable = file.state == FileState::Unreachable;
        let local = file
            .filesystem
            .and_then(|number| trace.filesystems.get(number as usize))
            .is_some_and(|filesystem| filesystem.local);
        // What is kept in memory is read from nowhere.
        if !local && !unreachable {
            continue;
        }
        let fresh = seen[used.file as usize].insert(pages_of(&used, file, page_size));
        let pages: u64 = fresh.iter().map(|range| range.pages()).sum();
        total.pages += pages;
        if unreachable {
            total.unreachable_pages += pages;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing;
    use headstart_model::trace::Use;

    #[test]
    fn what_no_path_leads_to_is_counted_once() {
        let mut trace = testing::trace();
        trace.files = vec![testing::file("/f")];
        trace.files[0].size = 1 << 20;
        let one = |start, kind| Use {
            time_ns: 0,
            process: 0,
            file: 0,
            start,
            pages: 4,
            kind,
        };
        trace.uses = vec![
            one(0, UseKind::Read),
            one(2, UseKind::Fault),
            one(20, UseKind::Around),
        ];
        trace.files[0].state = FileState::Unreachable;
        let expected = Used {
            pages: 6,
            unreachable_pages: 6,
        };
        assert_eq!(used(&trace), expected);
        trace.files[0].state = FileState::Present;
        assert_eq!(used(&trace).unreachable_pages, 0);
    }
}

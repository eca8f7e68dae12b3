//! Which pages of a window were really touched.
//!
//! Around a touched page the kernel maps what is in memory, and who touches that later is not seen. A run
//! tells of a page that it was not touched where others of its window were and it was mapped with none of
//! them: then a touch would have been a fault of its own. That is so of nearly all pages while the kernel
//! maps nothing around a fault (its `fault_around_bytes` is one page), of a cold start's where only one page
//! of a window was needed, and of what a plan left out.
//!
//! A page is left out of plans when two runs have told so, and none has touched it. A touch puts it back for
//! good, until the file is another, and is always seen: what is not in memory is not mapped with others.

use crate::run::{PathUse, tells};
use headstart_model::profile::{Entry, Touches};
use headstart_model::{PageSet, Profile, Trace};

/// Of the pages of all windows, one in so many may be unknown in a run that is exact, and one in so many of a
/// profile's need not be settled.
const FEW: u64 = 10;

/// The first runs that are to be exact; then one in [`UNSETTLED_EVERY`] while there is much to find out, and
/// one in [`SETTLED_EVERY`] afterwards: what a start needs changes.
const FIRST: u32 = 4;
const UNSETTLED_EVERY: u32 = 4;
const SETTLED_EVERY: u32 = 20;

/// Whether a run that tells does so of nearly all pages.
pub(crate) fn is_exact<'a>(paths: impl Iterator<Item = &'a PathUse>) -> bool {
    let (mut all, mut unknown) = (0, 0);
    for path in paths.filter(|path| !path.pages.is_empty()) {
        let pages = path.window_pages();
        all += pages.pages();
        let hidden = path.perhaps.pages().difference(&path.touched.pages());
        unknown += hidden.intersection(&pages).pages();
    }
    all > 0 && unknown * FEW <= all
}

/// Of the same version of a file: what was known, and what a run says, which tells of its pages or not.
pub(crate) fn touches(known: Option<Touches>, used: &PathUse, tells: bool) -> Option<Touches> {
    if known.is_none() && !tells {
        return None;
    }
    let mut touches = known.unwrap_or_default();
    touches.touched = touches.touched.union(&used.touched.pages());
    if tells {
        let hidden = used.perhaps.pages();
        let now = used.window_pages().difference(&hidden);
        touches.unused = touches.unused.union(&touches.once.intersection(&now));
        touches.once = touches.once.union(&now).difference(&touches.unused);
    }
    touches.once = touches.once.difference(&touches.touched);
    touches.unused = touches.unused.difference(&touches.touched);
    Some(touches)
}

/// Whether the next start is to be recorded while the kernel maps nothing around a fault; `last` is the trace
/// of the last one.
pub fn exact_is_due(profile: &Profile, last: &Trace) -> bool {
    let since = profile.runs.saturating_add(1).saturating_sub(profile.exact_at);
    let every = match is_settled(profile) {
        true => SETTLED_EVERY,
        false if profile.runs < FIRST => 1,
        false => UNSETTLED_EVERY,
    };
    since >= every && tells(last)
}

/// Whether of nearly all pages that have enough votes it is known whether they are needed.
fn is_settled(profile: &Profile) -> bool {
    let threshold = profile.policy.threshold();
    let open = |entry: &Entry, voted: PageSet| match &entry.touches {
        Some(it) => voted.difference(&it.touched).difference(&it.unused).pages(),
        None => voted.pages(),
    };
    let (mut all, mut left) = (0, 0);
    // What is counted from the end of a file that changes is planned as it is.
    for entry in profile.entries.iter().filter(|entry| entry.tail.is_none()) {
        let voted = entry.voted(threshold);
        all += voted.pages();
        left += open(entry, voted);
    }
    left * FEW <= all
}

#[cfg(test)]
mod tests;

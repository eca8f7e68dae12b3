//! The nouns of headstart: what a start did ([`trace`]), what a key needs ([`profile`]), where that is on
//! this machine ([`plan`]), what a replay achieved ([`outcome`]), the facts a plan is made from
//! ([`machine`]), and the page-range algebra they share ([`ranges`]). File formats are in [`format`], their
//! limits in [`limits`]. No module here makes a system call.
//!
//! Units, everywhere: times are nanoseconds (`_ns`) since the start began unless a name says `unix`; page
//! numbers and counts are in pages of `page_size` bytes; offsets, lengths and sizes are bytes.

pub mod activity;
pub mod blocks;
pub mod floor;
pub mod format;
pub mod human;
pub mod key;
pub mod limits;
pub mod machine;
pub mod named_files;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod profile;
pub mod profile_set;
pub mod range_list;
pub mod ranges;
pub mod room;
pub mod sort;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod users;
pub mod uses;

pub use activity::Activity;
pub use key::Key;
pub use named_files::NamedFiles;
pub use outcome::Outcome;

pub use path::FilePath;
pub use profile::Profile;
pub use profile_set::ProfileSet;
pub use ranges::{GrowingSet, PageRange, PageSet};

pub use trace::Trace;
pub use uses::WindowUse;

//! The state directory: what headstart remembers between starts.
//!
//! ```text
//! STATE/
//!   keys/<hash>-<readable>/   one per key
//!     key                     its text
//!     profile, plan           the last ones
//!     <number>.trace          the last five, by the time when the start began (ns since 1970) and by turn
//!     <number>.outcome        the last 200
//!     turns                   replays since the last control run
//!     bypass                  why its starts are bypassed, while they are
//!     disabled                nothing is done for its starts, while it is there
//!     names                   by what else than their paths its programs are called
//!     users                   who has started it, and how often
//!     lock                    held by whoever writes here
//!     last.json               of boots: what the last one had to say
//!   starts/<hash>-<readable>  the state of a key whose starts are replayed, in one piece, to be read first
//!   starts/<hash>-boot.guard  the boot-failure guard
//!   devices/<uuid>.json       what reads cost, measured
//!   imported/, packaged/      what other machines' starts have taught: each as STATE, with the plan of this
//!                             machine, and `origin`, the file that it came from
//!   log                       what background work had to say
//!   said-<hash>               empty: a line of this kind was told to a user, once
//! ```
//!
//! Every file is written whole or not at all: a temporary file beside it, fsync, rename, fsync of the
//! directory; the boot-failure guard is one block, and written over in its place. So readers need no lock,
//! and a kill or a full disk leaves the old file. Directories are 0700, files 0600: paths tell what somebody
//! runs. A file that cannot be decoded is moved aside, named in a message, and otherwise treated as missing.

mod announced;
mod boot;
mod bypass;
mod device;
mod disabled;
mod error;
mod file;
mod imported;
mod in_place;
mod keydir;
mod layout;
mod limits;
mod log;
mod names;
mod place;
mod state;
mod store;
mod users;

pub use announced::{Announced, kind_of};
pub use boot::Guard;
pub use bypass::Bypass;
pub use device::DeviceCost;
pub use error::StoreError;
pub use file::{check_output, read_bounded, write_output, write_output_by, write_whole, write_whole_for};
pub use imported::Rank;
pub use keydir::{KeyDir, KeyLock, Loaded};
pub use layout::NAME_OF_BOOTS;
pub use limits::Limits;
pub use log::Log;
pub use place::{ENVIRONMENT, MACHINE, default_root};
pub use state::{Change, State, TAIL as START_TAIL, Turns};
pub use store::{KnownKeys, Store};
pub use users::UserStarts;

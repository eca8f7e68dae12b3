//! This machine, as far as two crates or more ask for it: what is mounted ([`mounts`]), how a file is opened
//! without harm ([`open`], many at once [`path_resolver`]), what a device is and costs ([`device`]), where
//! data ([`extents`]) and ext2/3/4 metadata ([`ext4`]) lie, what somebody is about to execute
//! ([`executions`]), how much is mapped around a fault ([`fault_around`]), what is in memory ([`residency`]),
//! how much memory and pressure there is ([`memory`]), how a thread begins ([`thread`]), what the kernel
//! offers ([`features`]); and all of it for a list of paths, as a plan needs it ([`snapshot`]).
//!
//! Every ioctl and, but for the recorder's and `headstart-init`'s, all `unsafe` of headstart is in this
//! crate.

pub mod ask_within;
pub mod blocked;
pub mod container;
pub mod device;
pub mod direct;
pub mod executions;
pub mod ext4;
pub mod extents;
mod fanotify;
pub mod fault_around;
pub mod features;
mod file_systems;
pub mod files;
pub mod handle;
pub mod handle_opener;
pub mod launch;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod open;
pub mod open_cost;
pub mod own_program;
pub mod owner;
pub mod packages;
pub mod path_resolver;
pub mod peer;
pub mod priority;
pub mod process;
pub mod program;
pub mod read_ahead;
pub mod residency;
pub mod resolve;
pub mod secrets;
pub mod sessions;
pub mod snapshot;
pub mod sys;
#[cfg(feature = "testing")]
pub mod testing;
pub mod thread;
mod why_not_opened;

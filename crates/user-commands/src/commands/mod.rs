//! The subcommands, one file each: its arguments, and what they are parsed, called and printed for.

pub mod apps;
pub mod bench;
pub mod boot_status;
pub mod chart;
pub mod compare;
pub mod diff;
pub mod doctor;
pub mod estimate;
pub mod explain;
pub mod export;
pub mod fleet;
pub mod floor;
pub mod forget;
pub mod hydrate;
pub mod keys;
pub mod learn;
pub mod plan;
pub mod profile;
pub mod replay;
pub mod report_bug;
pub mod show;
pub mod status;

//! The subcommands, one file each: its arguments, and what they are parsed, called and printed for.

pub mod apps;
mod beside;
pub mod boot;
mod boot_status;
pub mod chart;
pub mod compare;
pub mod daemon;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod floor;
pub mod forget;
pub mod layout;
pub mod learn;
pub mod mark;
pub mod op;
pub mod plan;
pub mod record;
pub mod replay;
pub mod report_bug;
pub mod run;
pub mod show;
pub mod status;

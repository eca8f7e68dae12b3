//! The subcommands, one file each: its arguments, and what they are parsed, called and printed for.

pub mod boot;
pub mod daemon;
pub mod features;
pub mod layout;
pub mod mark;
pub mod op;
pub mod record;
mod recorded_command;
pub mod run;

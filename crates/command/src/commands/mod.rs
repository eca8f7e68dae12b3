//! The subcommands, one file each: its arguments, and what they are parsed, called and printed for.

mod beside;
pub mod boot;
pub mod daemon;
pub mod layout;
pub mod mark;
pub mod op;
pub mod record;
pub mod run;

//! Whether and by how much starts with headstart differ from starts without, measured on purpose: the
//! statistics, the rule by which `headstart bench` ends, and what it reports. Pure.

pub mod report;
pub mod rule;
pub mod statistics;

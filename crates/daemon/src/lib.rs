//! The adapter for programs: `headstart daemon` notices every program start, learns those that wait for the
//! disk, and reads ahead for them from the second start on.
//!
//! [`key`] tells whose start an exec is. [`service`] is what the daemon offers to others, [`control`] the
//! socket by which they ask; [`apps`] is what the state directory alone can answer, [`programs`] asks
//! whichever there is, and [`metrics`] what is told to those who watch machines.

pub mod apps;
pub mod control;
pub mod key;
pub mod metrics;
pub mod programs;
pub mod serve;
pub mod service;
pub mod units;

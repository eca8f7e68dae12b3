//! What block devices read during a start, joined with whose it is and with a plan: [`compare`]. The reads
//! come from what a trace recorded itself ([`of_activity`]).
//!
//! Pure: no system call. Who owns a byte of a device is an argument ([`Part`]).

mod activity;
mod join;
mod plan;
mod uses;

pub use activity::of_activity;
pub use join::{
    Block, Comparison, Count, DeviceTotal, FileTotal, Had, Input, KindTotal, PartTotal, Split, TooMany,
    Unexplained, compare, wanted,
};

pub use headstart_model::blocks::Part;

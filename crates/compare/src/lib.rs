//! What block devices read during a start, joined with whose it is and with a plan: [`compare`]. The reads
//! come from what a trace recorded itself ([`of_activity`]). And whether files in another order pay
//! ([`Orders`]).
//!
//! Pure: no system call. Who owns a byte of a device is an argument ([`Part`]).

mod activity;
mod comparison;
mod join;
mod medium;
mod plan;
mod uses;

pub use activity::of_activity;
pub use comparison::{
    Block, Comparison, Count, DeviceTotal, FileTotal, Had, KindTotal, PartTotal, Split, Unexplained,
};
pub use join::{Input, TooMany, compare, wanted};
pub use medium::{MediumReads, Orders, Worth};

pub use headstart_model::blocks::Part;

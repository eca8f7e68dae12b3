//! A trace for other programs: a table for databases and spreadsheets, a timeline for Perfetto, stacks for
//! flame graphs; and a profile's order of files for programs that write images. `headstart export --help`
//! describes what is in them.

mod access;
mod csv;
mod folded;
mod order;
mod perfetto;

pub use csv::csv;
pub use folded::Waits;
pub use order::{ListFormat, Order, Unsaid, order};
pub use perfetto::perfetto;

#[cfg(test)]
mod tests;

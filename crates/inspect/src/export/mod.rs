//! A trace for other programs: a table for databases and spreadsheets, a timeline for Perfetto, stacks for
//! flame graphs. `headstart export --help` describes what is in them.

mod access;
mod csv;
mod folded;
mod perfetto;

pub use csv::csv;
pub use folded::Waits;
pub use perfetto::perfetto;

#[cfg(test)]
mod tests;

//! A trace for other programs: tables for databases and spreadsheets, a timeline for Perfetto, stacks for flame graphs.
//! `headstart export --help` describes what is in them.

mod access;
mod csv;
mod folded;
mod parquet;
mod perfetto;
mod protobuf;
mod thrift;

pub use csv::csv;
pub use folded::Waits;
pub use parquet::parquet;
pub use perfetto::perfetto;

#[cfg(test)]
mod tests;

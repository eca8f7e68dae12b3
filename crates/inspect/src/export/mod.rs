//! A trace for other programs: a table for databases and spreadsheets, a timeline for Perfetto, stacks for
//! flame graphs; and a profile's files for programs that fetch or write images. `headstart export --help`
//! describes what is in them.

mod access;
mod consumers;
mod csv;
mod folded;
mod images;
mod needed;
mod perfetto;

pub use consumers::{Consumer, Form, Listed, PlacesOf, all as consumers, named as consumer};
pub use csv::csv;
pub use folded::Waits;
pub use images::{ImageFile, ImageSize, Places, desync, nydus, overlaybd};
pub use needed::{Needed, ONLY_METADATA, Piece, Unsaid, Used};
pub use perfetto::perfetto;

#[cfg(test)]
mod tests;

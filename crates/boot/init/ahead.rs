//! How much is asked for of headstart itself; apart, for who tests it.

/// So many bytes, a multiple of what is asked for at a time: until the end of its data, all that a start
/// needs lies there (`crates/headstart/first.ld`). A test (`own.rs`) compares the two; what is missing
/// headstart asks for itself, one read later.
pub const OF_HEADSTART: usize = 2048 << 10;

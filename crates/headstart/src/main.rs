//! The headstart command.
fn main() {}

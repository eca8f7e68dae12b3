//! The `headstart-lab` command.
fn main() {}

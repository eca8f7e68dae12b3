//! headstart-lab: slow disks and honest measurements; nothing here ships to users.
fn main() {}

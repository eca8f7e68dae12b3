//! headstart-lab: slow disks, programs that start on them, and honest measurements; nothing here ships to users.

pub mod model;

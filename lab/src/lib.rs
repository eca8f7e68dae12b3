//! headstart-lab: slow disks, programs that start on them, and honest measurements; nothing here ships to users.

pub mod bench;
pub mod disk;
pub mod image;
pub mod machine;
pub mod model;
pub mod paths;
pub mod registry;
pub mod setup;
pub mod stats;
pub mod tools;

//! headstart-lab: slow disks, programs that start on them, and honest measurements; nothing here ships to
//! users.

mod built_in;
mod cgroup;
pub mod disk;
pub mod experiment;
mod fuse;
pub mod host;
pub mod image;
pub mod kind;
pub mod machine;
pub mod model;
mod mounts;
pub mod page;
pub mod pageout;
pub mod paths;
pub mod print;
pub mod registry;
pub mod report;
pub mod setup;
pub mod tools;

//! Events → [`Trace`](headstart_model::Trace): what is kept of them, and what names and places are found for
//! it.

pub mod builder;
pub mod inode;
pub mod layers;
pub mod mounts;
pub mod places;

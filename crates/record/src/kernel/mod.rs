//! What is attached to the kernel: BPF programs ([`bpf`]) or a tracefs instance ([`tracefs`]), and the common
//! language of both ([`event`]).

pub mod backend;
pub mod bpf;
pub mod clock;
pub mod event;
pub mod features;
mod libelf;
pub mod tracefs;

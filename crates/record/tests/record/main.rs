//! What recorders record, by BPF and by tracefs, on file systems of their own.
//! Needs root and a kernel with BTF.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod activity;
mod bpf;
mod calls;
mod early;
mod leaves_nothing;
mod namespaces;
mod places;
mod support;
mod tracefs;
mod waits;

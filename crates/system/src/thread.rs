//! How a thread begins.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack of a thread whose calls are few, bytes.
const SMALL_STACK: usize = 128 << 10;

/// Begins a thread of this name. What begins one is made anew by the compiler for each closure, several KiB each; for a box it is there once.
pub fn begin(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    begin_as(Builder::new().name(name.into()), work)
}

/// The same with a small stack.
pub fn begin_small(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    begin_as(Builder::new().name(name.into()).stack_size(SMALL_STACK), work)
}

fn begin_as(builder: Builder, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    builder.spawn(work)
}

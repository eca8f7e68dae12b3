//! What is printed fits a terminal, and what is exported is read by the programs it is for.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod columns;
mod export;

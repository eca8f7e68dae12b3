//! Many starts at a time, noticed as they begin: what the daemon records.

pub mod watch;

//! headstart: system.

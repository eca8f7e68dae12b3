//! headstart: learn.

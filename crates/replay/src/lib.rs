//! headstart: replay.

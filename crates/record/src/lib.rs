//! headstart: record.

//! headstart: store.

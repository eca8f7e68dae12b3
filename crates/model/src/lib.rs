//! headstart: model.

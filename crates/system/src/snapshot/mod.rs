//! snapshot/mod

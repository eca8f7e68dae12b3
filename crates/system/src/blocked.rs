//! blocked

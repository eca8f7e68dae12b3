//! Look-ups of 32-bit programs are learned.

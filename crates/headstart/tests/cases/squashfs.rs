//! Small files of a SquashFS, read with a buffer larger than they are, are learned.

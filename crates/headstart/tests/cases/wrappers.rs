//! What only starts another program has that program's key.

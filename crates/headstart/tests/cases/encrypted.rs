//! Names of encrypted directories are kept inside of them, or not at all.

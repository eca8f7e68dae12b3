//! ext4/mod

//! extents

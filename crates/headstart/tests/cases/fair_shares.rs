//! One user takes nothing from others.

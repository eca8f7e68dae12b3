//! A package that is installed into another root.

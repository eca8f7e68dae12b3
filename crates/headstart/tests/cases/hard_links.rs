//! A file of several names is learned by the name that the program used.

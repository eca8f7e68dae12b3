//! What is recorded inside a container on an overlay is learned by the overlay's own paths.

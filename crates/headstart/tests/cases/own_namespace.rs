//! Images that are mounted in the start's own mount namespace.

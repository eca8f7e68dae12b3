//! Files below more directories than are usual are learned.

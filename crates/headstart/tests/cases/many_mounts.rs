//! What a recording costs grows with what is used, not with what the machine has.

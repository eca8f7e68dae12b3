//! What cannot gain is not kept, and what is declined is no control.

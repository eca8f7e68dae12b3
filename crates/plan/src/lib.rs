//! headstart: plan.

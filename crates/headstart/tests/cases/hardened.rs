//! What a sandbox forbids headstart costs the command nothing.

//! A command near its own memory, task or resource limits ends as it does without headstart.

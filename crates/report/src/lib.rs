//! headstart: report.

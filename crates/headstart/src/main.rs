//! The program `headstart`; all of it is the library's, so that its man pages are made without it.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart_command::main()
}

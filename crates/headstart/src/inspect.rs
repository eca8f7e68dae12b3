//! The program `headstart-inspect`; all of it is the library's, so that man pages are made without it.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart_user_commands::main()
}

//! The program `headstart`; all of it is a library's, whose dependencies tell what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart_start_commands::main()
}

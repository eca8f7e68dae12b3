//! `headstart fleet` executes another program, where that is installed.

use crate::common::{self, Case};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn fleet_is_another_programs_and_gets_all_words() {
    let case = Case::new();
    let place = case.path("bin");
    fs::create_dir(&place).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(common::binary());
        command.arg("fleet").args(words).env("PATH", &place);
        common::finish(command, &[])
    };
    // One line says how to install it.
    let missing = run(&["merge", "--help"]);
    missing.refused(&["headstart-fleet is not in PATH", "pipx install DIR/fleet"]);
    assert_eq!(run(&[]).err.lines().count(), 1);
    let program = place.join("headstart-fleet");
    fs::write(&program, "#!/bin/sh\nprintf '[%s]' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    run(&["merge"]).refused(&["cannot execute headstart-fleet"]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = run(&["merge", "--help", "a b", "--state", "-o", "x"]);
    assert_eq!(
        (ran.code(), ran.out.as_str()),
        (7, "[merge][--help][a b][--state][-o][x]")
    );
    assert_eq!(run(&["--help"]).out, "[--help]");
}

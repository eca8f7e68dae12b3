//! What people read fits a terminal of 80 columns: seen through a pseudo-terminal.

use crate::common::{Case, binary, can_record};
use std::process::Command;

/// What a command writes to a terminal of 80 columns, line by line, without what moves the cursor.
fn at_a_terminal(case: &Case, words: &str) -> Vec<String> {
    let shell = format!("stty rows 24 cols 80; {} {words}", binary().display());
    let mut command = Command::new("script");
    command
        .args(["-qec", &shell, "/dev/null"])
        .env("HEADSTART_STATE", case.state())
        .env("TERM", "xterm")
        .current_dir(case.path("."));
    let ran = command.output().expect("script(1) of util-linux runs");
    let text = String::from_utf8_lossy(&ran.stdout).replace("\x1b[K", "");
    let mut visible = String::new();
    let mut escaped = false;
    for c in text.chars() {
        match (c, escaped) {
            ('\x1b', _) => escaped = true,
            ('m', true) => escaped = false,
            (_, true) => {}
            _ => visible.push(c),
        }
    }
    // A line that is written over is several.
    visible.split(['\n', '\r']).map(str::to_owned).collect()
}

#[test]
fn nothing_that_people_read_is_wider_than_a_terminal() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let long = format!("{}-{}", "a-file-with-a-name".repeat(5), "x".repeat(40));
    case.write(&long, vec![1; 100_000]);
    let path = case.path(&long);
    let script = format!("cat {}", path.display());
    for _ in 0..2 {
        assert_eq!(case.run("short", &["sh", "-c", &script]).code(), 0);
        assert_eq!(
            case.headstart(&["run", "--wait", "--", "sh", "-c", &script])
                .code(),
            0
        );
    }
    let ran = case.headstart(&["record", "-o", "t.trace", "--", "sh", "-c", &script]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let ran = case.headstart(&["learn", "t.trace", "-o", "t.profile"]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let explained = [
        format!("explain {}", path.display()),
        format!("explain --verbose {}", path.display()),
    ];
    let words = [
        "--help",
        "bench --help",
        "run --help",
        "status",
        "status short",
        "estimate",
        "estimate --all",
        "doctor",
        "boot status",
        "apps list",
        "apps show short",
        "floor short",
        "layout status",
        "show t.trace",
        "show t.profile",
        "diff t.profile t.profile",
        "status nothing-of-this-name",
    ];
    for words in words.into_iter().chain(explained.iter().map(String::as_str)) {
        let lines = at_a_terminal(&case, words);
        assert!(lines.iter().any(|line| !line.is_empty()), "{words} says nothing");
        // What an error quotes is as long as it is.
        let is_error = |line: &&String| line.starts_with("headstart: ");
        let wide: Vec<&String> = lines
            .iter()
            .filter(|line| !is_error(line) && line.chars().count() > 80)
            .collect();
        assert!(wide.is_empty(), "{words}: {wide:#?}");
    }
}

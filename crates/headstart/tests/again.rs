//! `tests/again`, by which make runs every test program: what fails twice fails, and what passes the second time is named.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

const TESTS: &str = r#"
#[test] fn passes() {}
#[test] fn fails() { assert!(std::env::var_os("FAILS").is_none()) }
#[test] fn fails_once() { assert!(std::fs::remove_file(std::env::var("ONCE").unwrap()).is_err()) }
"#;

#[test]
fn a_test_that_fails_is_run_once_more_and_counts_if_it_fails_again() {
    let directory = tempfile::tempdir().unwrap();
    let in_it = |name: &str| directory.path().join(name);
    fs::write(in_it("tests.rs"), TESTS).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let made = Command::new(rustc)
        .args(["--edition", "2024", "--test", "-o"])
        .args([in_it("tests"), in_it("tests.rs")])
        .status()
        .unwrap();
    assert!(made.success());
    let again = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/again");
    let run = |environment: &[(&str, &str)]| {
        let _ = fs::remove_file(in_it("flaky"));
        let status = Command::new(&again)
            .arg(in_it("tests"))
            .env("FLAKY", in_it("flaky"))
            .env("ONCE", in_it("once"))
            .env_remove("FAILS")
            .envs(environment.iter().copied())
            .output()
            .unwrap()
            .status;
        (
            status.code(),
            fs::read_to_string(in_it("flaky")).unwrap_or_default(),
        )
    };
    assert_eq!(run(&[]), (Some(0), String::new()));
    fs::write(in_it("once"), "").unwrap();
    assert_eq!(run(&[]), (Some(0), "tests fails_once\n".to_owned()));
    fs::write(in_it("once"), "").unwrap();
    assert_eq!(run(&[("FAILS", "1")]), (Some(101), String::new()));
    // A program that does not come to its end has said of no test that it failed.
    let ended = Command::new(&again).arg("false").output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
}

//! Look-ups of 32-bit programs are learned.
#![cfg(target_arch = "x86_64")]

use crate::common::{Case, can_record, needs};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// A program that looks up, lists and reads by the calls of 32-bit programs if it is given a second argument.
fn program(case: &Case) -> PathBuf {
    let source = case.write("calls.c", include_str!("calls.c"));
    let program = case.path("calls");
    let built = Command::new("cc")
        .args(["-w", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success(), "cc");
    program
}

/// Whether this kernel has the calls of 32-bit programs.
#[track_caller]
fn has_compat(program: &PathBuf, case: &Case) -> bool {
    let ran = Command::new(program)
        .args([&case.path(""), &PathBuf::from("32")])
        .status();
    needs(
        "the system calls of 32-bit programs (CONFIG_IA32_EMULATION)",
        ran.unwrap().success(),
    )
}

/// What was looked up below a directory: kind, whether it was found, and path.
fn lookups(trace: &Value, below: &str) -> BTreeSet<(String, bool, String)> {
    let lookups = trace["lookups"].as_array().unwrap().iter();
    lookups
        .filter_map(|one| {
            let path = one["path"].as_str()?.strip_prefix(below)?.to_owned();
            Some((one["kind"].as_str()?.to_owned(), one["found"].as_bool()?, path))
        })
        .collect()
}

#[test]
fn what_a_32_bit_program_looks_up_is_what_a_64_bit_one_does() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    std::fs::create_dir(case.path("d")).unwrap();
    for i in 0..1500 {
        case.write(&format!("d/{i}"), "x");
    }
    if !has_compat(&program, &case) {
        return;
    }
    let dir = case.path("d");
    let dir = dir.to_str().unwrap();
    let recorded = |mode: &[&str]| {
        let mut words = vec![
            "record",
            "--backend",
            "bpf",
            "-o",
            "trace",
            "--",
            program.to_str().unwrap(),
            dir,
        ];
        words.extend(mode);
        let ran = case.headstart(&words);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        lookups(&case.json(&["show", "trace", "--json"]), dir)
    };
    let (native, compat) = (recorded(&[]), recorded(&["32"]));
    assert!(native.len() > 1900, "{}", native.len());
    let of_calls = native
        .iter()
        .filter(|(.., path)| path.starts_with("/none/"))
        .count();
    assert_eq!(
        of_calls, 21,
        "names that are not there, one for each call of `calls`"
    );
    let missing: Vec<_> = native.symmetric_difference(&compat).take(5).collect();
    assert!(
        missing.is_empty(),
        "{} and {}: {missing:?}",
        native.len(),
        compat.len()
    );
}

/// The numbers mean other calls: what a 64-bit program would look up by them is nothing that this one did.
#[test]
fn calls_are_not_taken_for_those_of_the_same_number() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    std::fs::create_dir(case.path("d")).unwrap();
    if !has_compat(&program, &case) {
        return;
    }
    let dir = case.path("d");
    let words = ["record", "--backend", "bpf", "-o", "trace", "--"];
    let words = [
        &words[..],
        &[program.to_str().unwrap(), dir.to_str().unwrap(), "32", "write"],
    ]
    .concat();
    let ran = case.headstart(&words);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let seen = lookups(&case.json(&["show", "trace", "--json"]), "");
    // Number 4 is write(2) there, and stat(2) here.
    assert!(
        !seen.iter().any(|(_, _, path)| path.contains("not-a-path")),
        "{seen:?}"
    );
}

//! Files below more directories than are usual are learned.

use crate::common::{Case, can_record};
use std::path::{Path, PathBuf};

/// A directory so many levels below another, by names of one letter.
fn deep(below: &Path, levels: usize) -> PathBuf {
    let path = (0..levels).fold(below.to_path_buf(), |path, _| path.join("d"));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn files_at_any_depth_that_a_path_may_have_are_recorded() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    // As deep as a path of 4,095 bytes leads.
    let most = (4095 - case.path("").as_os_str().len() - "/file".len()) / 2;
    for levels in [5, 125, 128, 141, 500, most] {
        let file = deep(&case.path(""), levels).join("file");
        std::fs::write(&file, vec![7; 20_000]).unwrap();
        for start in ["cold", "warm"] {
            let words = [
                "record",
                "--backend",
                "bpf",
                "-o",
                "trace",
                "--",
                "cat",
                file.to_str().unwrap(),
            ];
            let ran = case.headstart(&words);
            assert_eq!(ran.code(), 0, "{}", ran.err);
            let trace = case.json(&["show", "trace", "--json"]);
            assert_eq!(trace["lost"]["paths"], 0, "{levels} levels, {start}");
            let is_it = |file_: &serde_json::Value| file_["path"] == file.to_str().unwrap();
            assert!(
                trace["files"].as_array().unwrap().iter().any(is_it),
                "{levels} levels, {start}"
            );
            assert!(
                trace["lookups"].as_array().unwrap().iter().any(is_it),
                "{levels} levels, {start}"
            );
        }
    }
}

/// Programs deep below are known by their paths, and so is what they look up from where they are.
#[test]
fn a_program_at_depth_and_its_directory_too() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let dir = deep(&case.path(""), 300);
    std::fs::copy("/bin/cat", dir.join("program")).unwrap();
    std::fs::write(dir.join("file"), "x").unwrap();
    let command = format!("cd {} && ./program file missing; true", dir.display());
    let ran = case.headstart(&[
        "record",
        "--backend",
        "bpf",
        "-o",
        "trace",
        "--",
        "sh",
        "-c",
        &command,
    ]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let trace = case.json(&["show", "trace", "--json"]);
    let program = dir.join("program");
    let ran_it = |one: &serde_json::Value| one["executable"] == program.to_str().unwrap();
    assert!(trace["processes"].as_array().unwrap().iter().any(ran_it));
    for name in ["file", "missing"] {
        let path = dir.join(name);
        let is_it = |one: &serde_json::Value| {
            one["path"] == path.to_str().unwrap() && one["found"] == (name == "file")
        };
        assert!(trace["lookups"].as_array().unwrap().iter().any(is_it), "{name}");
    }
}

/// What is learned of them is read ahead.
#[test]
fn a_start_reads_ahead_what_lies_deep() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let file = deep(&case.path(""), 1000).join("file");
    std::fs::write(&file, vec![7; 4_000_000]).unwrap();
    let evict = || {
        let open = std::fs::File::open(&file).unwrap();
        open.sync_all().unwrap();
        rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    for _ in 0..2 {
        evict();
        assert_eq!(case.run("deep", &["cat", file.to_str().unwrap()]).code(), 0);
    }
    let known = case.json(&["explain", "--name", "deep", "--json", file.to_str().unwrap()]);
    assert_eq!(known[0]["prefetched"], true, "{known}");
    let ranges = known[0]["entry"]["ranges"].as_array().unwrap().iter();
    let pages: u64 = ranges.map(|range| range["pages"].as_u64().unwrap()).sum();
    assert_eq!(pages, 977, "{known}");
}

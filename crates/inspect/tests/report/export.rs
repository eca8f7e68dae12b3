//! That exports are read by DuckDB and by Python's csv and json, and keep the rules of the trace event
//! format. DuckDB comes from PyPI (`duckdb`), so this is a test of `make test-all` only.

use headstart_inspect::export::{csv, perfetto};
use headstart_model::trace::File;
use headstart_model::{FilePath, Trace, testing};
use std::path::Path;
use std::process::Command;

/// 20,000 uses of files with paths that are hard to write.
fn trace() -> Trace {
    let mut long = b"/long".to_vec();
    long.resize(4095, b'x');
    let paths: [&[u8]; 5] = [
        b"/usr/share/a\"b,c.txt",
        b"/line\nfeed\r\n/return",
        b"/invalid/\xff\xfe\x80",
        "/<script>/\u{202e}\u{1f600}'".as_bytes(),
        &long,
    ];
    let mut trace = testing::trace();
    trace.files = paths
        .iter()
        .map(|path| File {
            path: FilePath::from(path.to_vec()),
            inode: u64::MAX,
            ..testing::file("/")
        })
        .collect();
    trace.files[1].filesystem = None;
    trace.uses = (0..20_000u64)
        .map(|n| testing::used(n, n as u32 % 5, n, 1 + n as u32 % 7))
        .collect();
    trace.lookups = paths
        .iter()
        .map(|path| {
            let mut lookup = testing::lookup(50, "/");
            lookup.path = FilePath::from(path.to_vec());
            lookup.found = path.len() % 2 == 0;
            lookup
        })
        .collect();
    trace.activity = Some(testing::activity());
    trace
}

/// Python with DuckDB, installed below the target directory the first time.
fn python(target: &Path) -> Command {
    let packages = target.join("python");
    if !packages.join("duckdb").exists() {
        let installed = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--break-system-packages",
                "--target",
            ])
            .arg(&packages)
            .arg("duckdb")
            .status();
        assert!(
            installed.is_ok_and(|status| status.success()),
            "python3 -m pip cannot install duckdb"
        );
    }
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages);
    python
}

#[test]
#[ignore = "it takes duckdb from PyPI: make test-all"]
fn duckdb_and_python_read_what_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace();
    let made = |name: &str, write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        std::fs::write(dir.path().join(name), bytes).unwrap();
    };
    made("t.csv", &|out| csv(&trace, out));
    made("t.json", &|out| perfetto(&trace, out));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/export.py");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let output = python(target).arg(script).arg(dir.path()).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

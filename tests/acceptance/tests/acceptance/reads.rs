//! A cold read whose pages come in one by one: what the reader takes while it waits for the next is used like
//! all others, though the kernel has no event for it (`crates/record/src/kernel/bpf/asked.h`).

use anyhow::{Context, Result};
use headstart_acceptance::Case;
use headstart_lab::image::Fs;
use headstart_model::Trace;
use headstart_model::trace::UseKind;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

const PAGE: u64 = 4096;

#[test]
fn pages_taken_while_others_are_waited_for_are_told() -> Result<()> {
    let disk = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lab/experiments/disks/60ms.toml"
    );
    let mut case = Case::on(disk, "python", Fs::Ext4)?;
    let _mounted = case.machine.fresh()?;
    let path = case.machine.root().join("usr/lib/x86_64-linux-gnu/libc.so.6");
    let path = fs::canonicalize(&path).with_context(|| format!("{} is one of many files", path.display()))?;
    let facts = fs::metadata(&path)?;
    let device = facts.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // Nothing but what is asked for (who opens the file from now on): four pages, then one that is on its way
    // when eight are read.
    fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), "0")?;
    fs::File::open(&path)?.read_exact_at(&mut [0; 4 * PAGE as usize], 0)?;
    let script = "dd if=$0 of=/dev/null bs=4096 skip=4 count=1 & sleep 0.02; dd if=$0 of=/dev/null bs=32768 count=1; wait";
    let dir = tempfile::tempdir()?;
    let trace = dir.path().join("reads.trace");
    let record = ["record", "-o", &trace.to_string_lossy(), "--", "sh", "-c", script].map(str::to_owned);
    let words: Vec<&str> = record.iter().map(String::as_str).collect();
    let mut line = case.headstart(&words)?;
    line.push(path.to_string_lossy().into_owned());
    case.machine.stage("start", &line)?;

    let trace = Trace::from_bytes(&fs::read(&trace)?)?;
    let is_it = |use_: &&headstart_model::trace::Use| {
        trace
            .files
            .get(use_.file as usize)
            .is_some_and(|file| file.inode == facts.ino() && file.size > 8 * PAGE)
            && use_.kind == UseKind::Read
    };
    let uses = trace.uses.iter().filter(is_it);
    let pages: BTreeSet<u64> = uses
        .flat_map(|used| used.start..used.start + u64::from(used.pages))
        .collect();
    assert_eq!(pages, (0..8).collect());
    Ok(())
}

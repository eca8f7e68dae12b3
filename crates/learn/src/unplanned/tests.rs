use super::*;
use headstart_model::plan::{PlanFile, Request};
use headstart_model::testing::{self, FLASH};
use headstart_model::trace::Use;

const MIB: u64 = 256;

/// A start that has used so many pages of each of these files, read from their beginnings.
fn start(files: &[(&str, u64)]) -> Trace {
    let mut trace = testing::trace();
    trace.files.clear();
    trace.uses.clear();
    trace.mappings.clear();
    for (path, pages) in files {
        trace.uses.push(Use {
            kind: UseKind::Read,
            ..testing::used(1, trace.files.len() as u32, 0, *pages as u32)
        });
        trace.files.push(File {
            size: pages * 4096,
            ..testing::file(path)
        });
    }
    trace.lost.paths = 0;
    trace
}

/// A plan that asks for so many pages of each of these.
fn plan(files: &[(&str, u64)]) -> PlanFile {
    let entries = files.iter().map(|(path, _)| testing::planned(path)).collect();
    let requests = files
        .iter()
        .enumerate()
        .map(|(index, (_, pages))| Request::new(RequestKind::Data, index as u32, pages * 4096))
        .collect();
    testing::plan_file(&testing::draft(FLASH, entries, requests))
}

fn is_much(trace: &Trace, planned: &[(&str, u64)]) -> bool {
    much_is_unplanned(trace, Some(&plan(planned).plan().unwrap()))
}

#[test]
fn a_start_whose_plan_asks_for_what_it_used_is_told_by_it() {
    let trace = start(&[("/a", 10 * MIB), ("/b", MIB)]);
    assert!(!is_much(&trace, &[("/a", 10 * MIB), ("/b", MIB)]));
    assert!(!is_much(&trace, &[("/a", 10 * MIB)]), "a tenth, nearly");
    assert!(is_much(&trace, &[("/b", MIB)]));
    assert!(
        is_much(&trace, &[("/a", 8 * MIB), ("/b", MIB)]),
        "a part of a file"
    );
    assert!(much_is_unplanned(&trace, None));
    assert!(
        !is_much(&start(&[("/a", 40), ("/b", 40)]), &[("/a", 40)]),
        "160 KiB"
    );
}

#[test]
fn what_was_not_found_again_counts_and_what_comes_from_no_device_does_not() {
    let planned: &[(&str, u64)] = &[("/a", MIB)];
    let with = |change: &dyn Fn(&mut Trace)| {
        let mut trace = start(&[("/a", MIB), ("/b", 4 * MIB)]);
        change(&mut trace);
        is_much(&trace, planned)
    };
    let began_ns = testing::trace().meta.started_unix_ns as i64;
    assert!(with(&|trace| trace.files[1].state = FileState::Unreachable));
    assert!(with(&|trace| {
        trace.files[1].state = FileState::Unreachable;
        trace.files[1].filesystem = None;
        trace.files[1].path = "d/x".into();
    }));
    assert!(with(&|trace| {
        trace.files[1].state = FileState::Deleted;
        trace.files[1].mtime_ns = began_ns - 1;
    }));
    // What it has written itself.
    assert!(!with(&|trace| {
        trace.files[1].state = FileState::Deleted;
        trace.files[1].mtime_ns = began_ns;
    }));
    assert!(!with(&|trace| trace.files[1].state = FileState::Made));
    assert!(!with(&|trace| trace.files[1].path = "/proc/1/exe".into()));
    assert!(!with(&|trace| trace.files[1].mode = 0o060_660));
    assert!(!with(&|trace| {
        let mut memory = trace.filesystems[0].clone();
        memory.local = false;
        trace.filesystems.push(memory);
        trace.files[1].filesystem = Some(trace.filesystems.len() as u32 - 1);
    }));
    // Nobody knows that these were touched.
    assert!(!with(&|trace| trace.uses[1].kind = UseKind::Around));
    assert!(!with(&|trace| trace.uses[1].kind = UseKind::Add));
    assert!(with(&|trace| trace.uses[1].kind = UseKind::Map));
    assert!(!with(&|trace| trace.uses.truncate(1)));
    // Files of which not even a name was found, each as large as another.
    assert!(with(&|trace| {
        trace.uses.truncate(1);
        trace.lost.paths = 1;
    }));
}

//! What `show` prints fits a terminal of 80 columns, whatever is in the files.

use headstart_inspect::table::COLUMNS;
use headstart_inspect::{outcome, plan, profile as profile_text, trace as trace_text};
use headstart_model::outcome::{Mode, StageOutcome};
use headstart_model::plan::{NO_FILE, Request, RequestKind};
use headstart_model::testing::{
    FLASH, draft, entry, file, key, lookup, plan_file, planned, profile, range, trace, used,
};
use headstart_model::trace::Mark;
use headstart_model::{FilePath, Outcome};

/// A path of 4,095 bytes without a place to break it at.
fn long() -> String {
    format!("/{}", "x".repeat(4094))
}

#[track_caller]
fn fits(text: &str) {
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= COLUMNS, "{columns} columns: {line}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_trace_fits() {
    let mut trace = trace();
    trace.meta.command = vec!["python3".into(), "\u{1b}[2J".into(), "word ".repeat(50)];
    trace.processes[0].executable = long().as_str().into();
    trace.files = vec![file(&long())];
    trace.uses = vec![used(1, 0, 0, 1 << 20)];
    trace.lookups = vec![lookup(1, &long())];
    trace.marks = vec![Mark {
        time_ns: u64::MAX,
        stage: "s".repeat(255),
    }];
    fits(&trace_text::text(&trace, 1 << 20, false).to_string());
}

#[test]
fn a_profile_fits() {
    let mut entry = entry(&long());
    entry.ranges = vec![range(0, 1 << 30, 1.0)];
    entry.first_use_ns = u64::MAX;
    fits(&profile_text::text(&profile(vec![entry]), false, 1).to_string());
}

#[test]
fn a_plan_fits() {
    let requests = vec![
        Request::new(RequestKind::Metadata, NO_FILE, 1 << 40),
        Request::new(RequestKind::Data, 0, 1 << 20),
    ];
    let mut draft = draft(FLASH, vec![planned(&long())], requests);
    draft.devices[0].mount_point = FilePath::from(long().as_str());
    draft.devices[0].request_limit = u32::MAX;
    draft.devices[0].hold = 128 << 10;
    let file = plan_file(&draft);
    fits(&plan::text(&file.plan().unwrap(), false, 1).to_string());
}

#[test]
fn an_outcome_fits() {
    let many = 12_345_678;
    let mut outcome = Outcome::new(key(&"k".repeat(300)), Mode::Replay);
    outcome.not_learned = Some("a reason of many words ".repeat(20));
    outcome.stages = vec![StageOutcome {
        stage: "s".repeat(255),
        metadata_requests: many,
        opens: many,
        data_requests: many,
        issued_pages: many,
        resident_pages: many,
        arrived_pages: many,
        used_pages: many,
        late_pages: many,
        wasted_pages: many,
        missed_pages: many,
        ..StageOutcome::default()
    }];
    fits(&outcome::text(&outcome));
}

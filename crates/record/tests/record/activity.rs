//! What is recorded for charts: requests of block devices, what threads did, processors and memory.

use crate::support::*;
use headstart_model::activity::{Activity, RequestKind, ThreadState};
use headstart_model::trace::{EndReason, Trace};
use headstart_record::{BackendChoice, Options, Recorder};
use std::collections::HashMap;

fn with_activity() -> Options {
    Options {
        activity: true,
        ..tree()
    }
}

fn activity(trace: &Trace) -> &Activity {
    let activity = trace.activity.as_ref().expect("it was asked for");
    assert_eq!(activity.lost, 0);
    // What is recorded can be written, and reads the same but for what is rounded.
    let read = Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap();
    let read = read.activity.unwrap();
    assert_eq!(
        (read.requests.len(), read.slices.len(), read.memory.len()),
        (
            activity.requests.len(),
            activity.slices.len(),
            activity.memory.len()
        )
    );
    activity
}

/// Nanoseconds in a state of those whose executable ends so.
fn spent(trace: &Trace, executable: &str, state: ThreadState) -> u64 {
    let is_it = |process: u32| {
        let path = trace.processes[process as usize].executable.to_string();
        path.ends_with(executable)
    };
    let slices = activity(trace).slices.iter();
    slices
        .filter(|slice| slice.state == state && is_it(slice.process))
        .map(|slice| slice.to_ns - slice.from_ns)
        .sum()
}

#[test]
fn requests_of_a_device_and_who_waited_for_them() {
    if !can_record() {
        return;
    }
    let (mounted, _) = with_disk("ext4");
    let device = node(&mounted);
    let read = format!("dd if={device} of=/dev/null iflag=direct bs=64k count=300 status=none");
    let trace = record_beside(&with_activity(), &read, || {});
    let own = activity(&trace);
    let index = own
        .devices
        .iter()
        .position(|it| format!("/dev/{}", it.name) == device)
        .expect("the disk that was read");
    assert_eq!(
        own.devices[index].sectors,
        mounted.image().metadata().unwrap().len() / 512
    );
    let requests: Vec<_> = own
        .requests
        .iter()
        .filter(|it| it.device as usize == index && it.kind == RequestKind::Read)
        .collect();
    assert_eq!(
        requests.iter().map(|it| u64::from(it.sectors)).sum::<u64>(),
        300 * 128
    );
    // One reads from the beginning to the end.
    assert!(requests.is_sorted_by_key(|it| it.sector) && requests[0].sector == 0);
    for request in requests {
        assert!(request.completed_ns.is_some_and(|at| at >= request.issued_ns));
        let process = &trace.processes[request.process.expect("who asked") as usize];
        assert!(process.executable.to_string().ends_with("/dd"));
    }
    let waited = spent(&trace, "/dd", ThreadState::WaitingForDisk);
    let blocked = trace.end.blocked_ns.unwrap();
    assert!(
        waited > 0 && waited <= blocked + blocked / 20,
        "{waited} of {blocked}"
    );
}

#[test]
fn threads_run_and_sleep_one_thing_at_a_time() {
    if !can_record() {
        return;
    }
    let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let trace = record_beside(&with_activity(), &format!("sleep 0.3; {count}"), || {});
    assert!(spent(&trace, "/sleep", ThreadState::Sleeping) >= 300_000_000);
    assert_eq!(spent(&trace, "/sleep", ThreadState::WaitingForDisk), 0);
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    assert!(spent(&trace, shell.to_str().unwrap(), ThreadState::Running) > 0);
    // The shell waits for the other.
    assert!(spent(&trace, shell.to_str().unwrap(), ThreadState::Sleeping) >= 290_000_000);
    let own = activity(&trace);
    let mut until: HashMap<(u32, u32), u64> = HashMap::new();
    for slice in &own.slices {
        let until = until.entry((slice.process, slice.thread)).or_default();
        assert!(slice.from_ns >= *until, "{slice:?} began before {until}");
        assert!(slice.to_ns <= trace.end.elapsed_ns);
        *until = slice.to_ns;
    }
    assert!(own.memory.len() >= 3 && own.processors.len() >= 2);
    assert!(own.processors.is_sorted_by_key(|it| it.time_ns));
    assert!(own.memory.iter().all(|it| it.free > 0 && it.page_cache > 0));
}

#[test]
fn a_tree_has_only_its_own_threads_and_a_system_has_all() {
    if !can_record() {
        return;
    }
    let stranger = || {
        run("sleep", &["0.05"]);
    };
    let trace = record_beside(&with_activity(), "true", stranger);
    assert_eq!(spent(&trace, "/sleep", ThreadState::Sleeping), 0);
    let system = Options {
        backend: BackendChoice::Bpf,
        activity: true,
        ..Options::system()
    };
    let recorder = Recorder::start(&system).unwrap();
    stranger();
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    assert!(spent(&trace, "/sleep", ThreadState::Sleeping) >= 50_000_000);
    assert!(activity(&trace).slices.iter().all(|slice| {
        let pid = trace.processes[slice.process as usize].pid;
        pid != std::process::id()
    }));
}

#[test]
fn what_has_not_ended_with_the_recording_is_told_too() {
    if !can_record() {
        return;
    }
    let options = Options {
        until: headstart_record::Until::Seconds(1),
        ..with_activity()
    };
    // Both still go on after a second: one sleeps from the beginning on, one never does.
    let trace = record_beside(&options, "sleep 3 & while :; do :; done", || {});
    assert_eq!(trace.end.reason, EndReason::Limit);
    assert!(spent(&trace, "/sleep", ThreadState::Sleeping) >= 500_000_000);
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    assert!(spent(&trace, shell.to_str().unwrap(), ThreadState::Running) > 0);
}

#[test]
fn nothing_of_it_is_there_unless_asked_for_and_tracefs_says_that_it_cannot() {
    if !can_record() {
        return;
    }
    let trace = record_beside(&tree(), "true", || {});
    assert_eq!(trace.activity, None);
    let options = Options {
        backend: BackendChoice::Tracefs,
        ..with_activity()
    };
    let recorder = Recorder::start(&options).unwrap();
    assert!(recorder.no_activity().is_some_and(|why| why.contains("tracefs")));
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    assert_eq!(trace.activity, None);
    let recorder = Recorder::start(&with_activity()).unwrap();
    assert_eq!(recorder.no_activity(), None);
}

//! A trace instance that was there before the recorder, as `trace_instance=` on the kernel command line makes
//! one.

use crate::support::{Tracefs, Waiting, flood, with_disk, write};
use headstart_model::trace::{EndReason, Evidence};
use headstart_record::{BackendChoice, Options, Recorder, Trace};
use headstart_system::testing::{can_mount, is_root};
use std::path::PathBuf;

/// An instance made by hand, through a mount of its own; both are gone when it is dropped.
struct Instance {
    path: PathBuf,
    _mount: Tracefs,
}

impl Instance {
    /// As the kernel makes it from its command line.
    fn new(name: &str) -> Instance {
        let mount = Tracefs::new();
        let path = mount.instances().join(name);
        let instance = Instance { path, _mount: mount };
        std::fs::create_dir(&instance.path).unwrap();
        for event in [
            "filemap/mm_filemap_get_pages",
            "filemap/mm_filemap_map_pages",
            "filemap/mm_filemap_fault",
            "task/task_newtask",
            "sched/sched_process_exec",
            "sched/sched_process_exit",
        ] {
            let path = format!("events/{event}/enable");
            // Before 6.12 some do not exist: the recorder then says so.
            if instance.path.join(&path).exists() {
                instance.set(&path, "1");
            }
        }
        instance
    }

    fn set(&self, file: &str, value: &str) {
        std::fs::write(self.path.join(file), value).unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.path.exists() {
            std::fs::remove_dir(&self.path).unwrap();
        }
    }
}

fn start(name: &str) -> Recorder {
    Recorder::start(&Options {
        early_instance: Some(name.into()),
        backend: BackendChoice::Auto,
        ..Options::system()
    })
    .unwrap()
}

/// The first use of a page of each file, by the end of its path.
fn first_use(trace: &Trace, name: &str) -> Option<(u64, usize)> {
    let file = trace
        .files
        .iter()
        .position(|file| file.path.to_string().ends_with(name))? as u32;
    let uses: Vec<_> = trace.uses.iter().filter(|one| one.file == file).collect();
    let pages = uses.iter().map(|one| one.pages as usize).sum();
    Some((uses.iter().map(|one| one.time_ns).min()?, pages))
}

#[test]
fn what_an_instance_saw_before_is_part_of_the_recording() {
    if !can_mount() {
        return;
    }
    let _flood = flood();
    let name = format!("early-test-{}", std::process::id());
    let instance = Instance::new(&name);
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "before", 10_000);
    write(&disk, "after", 10_000);
    mounted.remount_cold().unwrap();
    // Twice, since of a page that a reader takes while it waits for the next one the kernel has no event.
    let at = disk.display();
    let cat = |file: &str| Waiting::start(&format!("cat {at}/{file} {at}/{file} >/dev/null")).run();
    cat("before");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let recorder = start(&name);
    cat("after");
    let early = recorder.early();
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    if trace.meta.evidence != Evidence::Uses {
        let why = early.unwrap().unwrap_err();
        return assert!(why.contains("what enters the page cache"), "{why}");
    }
    assert!(early.unwrap().unwrap() > 0);
    assert!(!instance.path.exists(), "it has been read and is of no more use");
    let (before, pages) = first_use(&trace, "/before").unwrap();
    assert_eq!(pages, 3);
    let (after, pages) = first_use(&trace, "/after").unwrap();
    assert_eq!(pages, 3);
    let apart_ms = (after - before) / 1_000_000;
    assert!(
        (300..5000).contains(&apart_ms),
        "{apart_ms} ms apart on one clock"
    );
}

#[test]
fn an_instance_that_has_lost_events_is_refused_and_the_recording_goes_on() {
    if !can_mount() {
        return;
    }
    let _flood = flood();
    let name = format!("early-lost-{}", std::process::id());
    let instance = Instance::new(&name);
    let (mut mounted, disk) = with_disk("ext4");
    instance.set("buffer_size_kb", "4");
    write(&disk, "before", 100_000);
    write(&disk, "after", 10_000);
    mounted.remount_cold().unwrap();
    let dd = format!("dd if={}/before of=/dev/null bs=10 2>/dev/null", disk.display());
    Waiting::start(&dd).run();
    let recorder = start(&name);
    // Twice, as above.
    let after = format!("{}/after", disk.display());
    Waiting::start(&format!("cat {after} {after} >/dev/null")).run();
    let early = recorder.early();
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    let why = early.unwrap().unwrap_err();
    if trace.meta.evidence == Evidence::Uses {
        assert!(why.contains("trace_buf_size="), "{why}");
    }
    assert_eq!(trace.lost.events, 0, "what the recorder itself saw is whole");
    assert!(first_use(&trace, "/after").is_some() && first_use(&trace, "/before").is_none());
    assert!(!instance.path.exists());
}

#[test]
fn without_an_instance_there_is_nothing_to_tell() {
    if !is_root() {
        return;
    }
    let recorder = start("no-such-instance");
    assert_eq!(recorder.early(), None);
    recorder.finish(EndReason::Quiet).unwrap();
}

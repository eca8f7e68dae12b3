//! What a replay leaves: what does not fit the plan, what is too much, what it may not. Needs root, for loop
//! devices.

use crate::common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::Skipped;
use headstart_model::plan::{PlanFile, RequestKind::*};
use headstart_replay::{Options, Replay, ReplayError};
use headstart_system::testing::undisturbed;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn what_does_not_fit_the_plan_is_skipped_and_counted() {
    for (depth, io_uring) in WAYS {
        skipped_and_counted(depth, io_uring, false);
    }
    skipped_and_counted(8, true, true);
}

/// `follow`: as if all that is read lay together, which a plan may say of anything.
fn skipped_and_counted(depth: u32, io_uring: bool, follow: bool) {
    let disk = Mounted::ext4(64, |root| {
        for name in ["good", "grown", "touched", "replaced", "directory-now", "short"] {
            file(root, name, 4);
        }
        assert!(
            std::process::Command::new("mkfifo")
                .arg(root.join("fifo"))
                .status()
                .unwrap()
                .success()
        );
        let node = std::process::Command::new("mknod")
            .arg(root.join("device"))
            .args(["c", "10", "130"])
            .status();
        assert!(node.unwrap().success());
        std::os::unix::fs::symlink("good", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/proc", root.join("proc")).unwrap();
        std::fs::create_dir(root.join("dir")).unwrap();
    });
    let root = disk.root();
    let at = |name: &str| root.join(name);
    let planned = |name: &str| entry(&root.join(name));
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, depth)]);
    // Without generations only what did not change is known to be the same.
    for name in ["good", "grown", "touched", "replaced", "directory-now"] {
        add(&mut plan, Data, planned(name), 0, 4 * PAGE);
    }
    add(&mut plan, Data, planned("short"), 3 * PAGE, 100 * PAGE); // cut at the end of the file
    add(&mut plan, Data, planned("short"), 4 * PAGE, PAGE); // changed: beyond it
    add(&mut plan, Data, planned("fifo"), 0, PAGE); // special
    add(&mut plan, Data, planned("device"), 0, PAGE); // special: opening it would start a watchdog
    add(&mut plan, Data, planned("link"), 0, PAGE); // special
    add(&mut plan, Data, planned("dir"), 0, PAGE); // special
    add(
        &mut plan,
        Data,
        unknown(at("proc/self/maps").to_str().unwrap()),
        0,
        PAGE,
    ); // special: a link on the way
    add(&mut plan, Data, unknown(at("gone").to_str().unwrap()), 0, PAGE); // missing
    add(
        &mut plan,
        Data,
        unknown(at("good/below").to_str().unwrap()),
        0,
        PAGE,
    ); // missing
    for path in ["/proc/kmsg", "/dev/zero", "/sys/kernel/notes", "/dev/shm/x"] {
        add(&mut plan, Data, unknown(path), 0, PAGE); // not local
        add(&mut plan, List, unknown(path), 0, 0); // not local
    }
    add(&mut plan, List, planned("good"), 0, 0); // changed
    add(&mut plan, List, planned("fifo"), 0, 0); // special
    add(&mut plan, List, planned("dir"), 0, 0);
    add(&mut plan, List, planned("link"), 0, 0); // read, not followed
    add(&mut plan, Stat, planned("fifo"), 0, 0);
    add(&mut plan, Stat, planned("link"), 0, 0);
    add(&mut plan, Stat, unknown(at("gone").to_str().unwrap()), 0, 0);
    let mut generation = planned("good");
    generation.generation = 12345;
    add(&mut plan, Data, generation, 0, PAGE); // changed
    let data = plan.requests.iter_mut().filter(|r| r.kind == Data);
    data.for_each(|request| request.follows = follow);

    file(&root, "grown", 5);
    std::fs::File::options()
        .write(true)
        .open(at("touched"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    std::fs::rename(at("replaced"), at("old")).unwrap();
    file(&root, "replaced", 4);
    std::fs::remove_file(at("directory-now")).unwrap();
    std::fs::create_dir(at("directory-now")).unwrap();

    let report = start_with(&plan, io_uring).finish();
    let expected = Skipped {
        missing: 2,
        changed: 7,
        special: 6,
        not_local: 8,
        ..Skipped::default()
    };
    assert_eq!(report.skipped, expected);
    assert_eq!(report.issued.len(), 7);
    assert_eq!(resident(&at("good")), [(0, 4)]);
    assert_eq!(resident(&at("short")), [(3, 4)]);
    assert_eq!(
        report.issued.len() as u64 + report.skipped.total(),
        plan.requests.len() as u64
    );
}

#[test]
fn requests_beyond_the_cut_are_not_issued() {
    undisturbed(|| {
        let disk = Mounted::ext4(32, |root| {
            file(root, "a", 4);
            file(root, "b", 4);
        });
        let root = disk.root();
        let mut plan = draft(vec![disk.planned(DeviceClass::Disk, 1)]);
        add(&mut plan, Data, entry(&root.join("a")), 0, 4 * PAGE);
        add(&mut plan, Data, entry(&root.join("b")), 0, 4 * PAGE);
        plan.cut = 1;
        let report = start(&plan).finish();
        assert_eq!(report.issued.len(), 1);
        assert_eq!(
            report.skipped,
            Skipped {
                over_budget: 1,
                ..Skipped::default()
            }
        );
        assert_eq!(
            (resident(&root.join("a")).len(), resident(&root.join("b")).len()),
            (1, 0)
        );
    });
}

#[test]
fn too_little_memory_stops_it_before_it_begins() {
    undisturbed(|| {
        let disk = Mounted::ext4(32, |root| file(root, "a", 4));
        let path = disk.root().join("a");
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
        add(&mut plan, Data, entry(&path), 0, 4 * PAGE);
        let options = Options {
            stop_below: u64::MAX,
            ..options()
        };
        let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options).unwrap();
        let report = replay.finish();
        assert_eq!(
            report.skipped,
            Skipped {
                stopped: 1,
                ..Skipped::default()
            }
        );
        assert_eq!((report.decisions.short, report.decisions.metadata_only), (1, 0));
        assert!(report.stopped.unwrap().contains("memory"));
        assert_eq!(resident(&path), []);
    });
}

#[test]
fn on_little_memory_metadata_is_read_and_data_is_not() {
    let disk = Mounted::ext4(32, |root| file(root, "a", 4));
    let path = disk.root().join("a");
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
    add(&mut plan, Stat, entry(&path), 0, 0);
    add(&mut plan, Data, entry(&path), 0, 4 * PAGE);
    // What is available now lies between half of what is to be left to others and all of it.
    let usable = headstart_system::memory::memory().unwrap().usable();
    let options = Options {
        stop_below: usable / 2 * 3,
        ..options()
    };
    let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options).unwrap();
    let report = replay.finish();
    assert_eq!((report.issued.len(), report.skipped.over_budget), (1, 1));
    let decisions = report.decisions;
    assert_eq!((decisions.metadata_only, decisions.without_room), (1, 1));
    assert!(report.stopped.is_none() && report.memory_needed.is_some());
    assert_eq!(resident(&path), []);
}

/// A process in a control group of so many bytes of memory; both end with it.
struct Limited {
    child: std::process::Child,
    group: PathBuf,
}

impl Limited {
    fn new(bytes: u64) -> Limited {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        if root != first {
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let group = root.join(format!("headstart-test-{}-replay", std::process::id()));
        // What limits it is the group above its own.
        let inner = group.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(group.join(file), bytes.to_string()).unwrap();
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let limited = Limited { child, group };
        std::fs::write(inner.join("cgroup.procs"), limited.child.id().to_string()).unwrap();
        limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A process that has ended may be on its way out.
        for _ in 0..1000 {
            let _ = std::fs::remove_dir(self.group.join("inner"));
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn no_more_is_read_than_the_starters_control_group_could_hold() {
    const MIB: u64 = 1 << 20;
    let disk = Mounted::ext4(64, |root| {
        (0..16).for_each(|n| file(root, &n.to_string(), MIB / PAGE));
    });
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
    for n in 0..16 {
        add(&mut plan, Data, entry(&disk.root().join(n.to_string())), 0, MIB);
    }
    let starter = Limited::new(8 * MIB);
    let options = Options {
        starter: Some(starter.child.id()),
        ..options()
    };
    let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options).unwrap();
    let report = replay.finish();
    // The process itself takes some of it.
    assert!(
        (4..=8).contains(&report.issued.len()),
        "{} of 16 MiB were read",
        report.issued.len()
    );
    assert_eq!(report.issued.len() as u64 + report.skipped.over_budget, 16);
    assert_eq!(
        u64::from(report.decisions.without_room),
        report.skipped.over_budget
    );
}

#[test]
fn stop_is_prompt() {
    // As many files as a plan may have, though all are the same one.
    const REQUESTS: u64 = 1 << 16;
    let disk = Mounted::ext4(512, |root| file(root, "f", REQUESTS));
    let path = disk.root().join("f");
    let mut plan = draft(vec![disk.planned(DeviceClass::Disk, 1)]);
    for n in (0..REQUESTS).rev() {
        // Backwards, one page each: slow anywhere.
        add(&mut plan, Data, entry(&path), n * PAGE, PAGE);
    }
    let options = options();
    let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options.clone()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    replay.stop();
    let stopped_ns = options.origin.elapsed().as_nanos() as u64;
    let report = replay.finish();
    // What a thread was about to ask for when it was stopped.
    let after = report.issued.iter().filter(|i| i.issued_ns > stopped_ns).count();
    assert!(after <= 2, "{after} requests were issued after it was stopped");
    assert!(
        report.skipped.stopped > 0,
        "it ended before it was stopped: {:?}",
        report.skipped
    );
    assert_eq!(report.stopped.as_deref(), Some("it was asked to stop"));
    assert_eq!(report.issued.len() as u64 + report.skipped.stopped, REQUESTS);
}

#[test]
fn more_files_than_descriptors_are_replayed() {
    const FILES: u64 = 700;
    let mut disk = Mounted::ext4(64, |root| {
        (0..FILES).for_each(|n| file(root, &format!("f{n}"), 1))
    });
    // Also where many are asked for at once.
    for follow in [false, true] {
        disk.cool();
        let root = disk.root();
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 16)]);
        for n in 0..FILES {
            add(&mut plan, Data, entry(&root.join(format!("f{n}"))), 0, PAGE);
        }
        plan.requests
            .iter_mut()
            .for_each(|request| request.follows = follow);
        plan.devices.push(disk.planned(DeviceClass::Disk, 1));
        std::fs::write(disk.beside().join("plan"), plan.to_bytes().unwrap()).unwrap();
        let report = child("descriptors", &disk.beside().join("plan"));
        assert_eq!(
            report,
            format!("{FILES} issued, {FILES} pages, 0 skipped, 0 denied")
        );
    }
}

#[test]
fn without_privilege_it_does_what_it_may() {
    undisturbed(|| {
        let mut disk = Mounted::ext4(32, |root| {
            file(root, "foreign", 4);
            file(root, "secret", 4);
            file(root, "own", 4);
            std::os::unix::fs::chown(root.join("own"), Some(65534), Some(65534)).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(root.join("secret"), private).unwrap();
        });
        disk.cool();
        let root = disk.root();
        let open: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(root.parent().unwrap(), open).unwrap();
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
        add_metadata(&mut plan, 8 << 20, PAGE);
        for name in ["foreign", "secret", "own"] {
            add(&mut plan, Data, entry(&root.join(name)), 0, 4 * PAGE);
        }
        add(&mut plan, Stat, entry(&root.join("secret")), 0, 0);
        std::fs::write(disk.beside().join("plan"), plan.to_bytes().unwrap()).unwrap();
        let report = child("nobody", &disk.beside().join("plan"));
        assert_eq!(report, "2 issued, 4 pages, 3 skipped, 3 denied");
        assert_eq!(resident(&root.join("own")), [(0, 4)]);
        assert_eq!(resident(&root.join("foreign")), []);
    });
}

/// Runs [`in_a_child`] in a process with fewer descriptors or without privileges; what it said.
fn child(how: &str, plan: &Path) -> String {
    let own = std::env::current_exe().unwrap();
    // A user without privileges may not be able to reach the build directory.
    let copy = plan.with_file_name("test");
    std::fs::copy(own, &copy).unwrap();
    let inner = format!(
        "{} {:?} --exact limits::in_a_child --ignored --nocapture",
        if how == "nobody" {
            "exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --no-new-privs --"
        } else {
            "ulimit -n 128; exec"
        },
        copy
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &inner])
        .env("HEADSTART_TEST_PLAN", plan)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().find_map(|l| l.split_once("said: "));
    said.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        .1
        .to_string()
}

#[test]
#[ignore = "run by other tests in a process of its own"]
fn in_a_child() {
    let plan = std::fs::read(std::env::var_os("HEADSTART_TEST_PLAN").unwrap()).unwrap();
    let report = Replay::start(PlanFile::new(plan), options()).unwrap().finish();
    let arrived: u64 = report.issued.iter().map(|i| i.arrived_pages).sum();
    println!(
        "\nsaid: {} issued, {arrived} pages, {} skipped, {} denied",
        report.issued.len(),
        report.skipped.total(),
        report.skipped.denied
    );
}

#[test]
fn damaged_plans_and_other_page_sizes_are_refused() {
    let mut plan = draft(vec![]);
    let mut bytes = plan.to_bytes().unwrap();
    bytes[20] ^= 0xff;
    let refused = Replay::start(PlanFile::new(bytes), options());
    assert!(matches!(refused, Err(ReplayError::Plan(_))));
    plan.page_size = 65536;
    let refused = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options());
    let Err(error @ ReplayError::PageSize { .. }) = refused else {
        panic!()
    };
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn a_plan_of_nothing_ends_at_once() {
    let report = start(&draft(vec![])).finish();
    assert_eq!((report.issued.len(), report.skipped.total()), (0, 0));
    assert!(report.memory_available > 0);
}

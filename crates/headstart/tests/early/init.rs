//! headstart-init as the unit asks it, and as process 1: where an initramfs has started headstart it waits
//! for that one's word, and only for it; else it starts one, on a root where nothing is mounted yet. What
//! becomes of a boot then the acceptance test `boot` shows.

use crate::common::is_root;
use crate::root::{process_1, root, write_bypass};
use headstart_boot::cmdline::Wish;
use headstart_boot::decision::decide_boot;
use headstart_boot::init::OF_HEADSTART;
use headstart_model::Key;
use headstart_start::bypass::machine;
use headstart_start::config::Config;
use headstart_start::decide::Decision;
use headstart_store::{Bypass, Change, Store};
use headstart_system::residency;
use headstart_system::testing::{LoopFs, Spec, can_mount, undisturbed, wait_resident};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Boots it.
fn boots(root: &Path) -> Command {
    process_1(root, "exec chroot \"$0\" /usr/sbin/headstart-init quiet", &[])
}

/// For so long headstart-init waits for a word (`init/main.rs`): what takes less was told.
const PATIENCE: Duration = Duration::from_secs(10);

/// Boots it, with its pipe open at somebody who gives each word after `pause`, and then ends; how long until
/// init had come.
fn boot(pause: Option<Duration>, words: &[&[u8]]) -> Duration {
    let dir = root();
    let root = dir.path();
    let pipe = root.join("run/headstart/init");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let writer = pause.map(|pause| (pause, File::options().read(true).write(true).open(&pipe).unwrap()));
    let begun = Instant::now();
    let mut boot = boots(root).spawn().unwrap();
    if let Some((pause, mut writer)) = writer {
        for word in words {
            std::thread::sleep(pause);
            assert!(!root.join("init").exists(), "it waits");
            writer.write_all(word).unwrap();
        }
    }
    assert!(boot.wait().unwrap().success());
    let took = begun.elapsed();
    let said = fs::read_to_string(root.join("init")).unwrap();
    assert_eq!(said, "/sbin/init quiet\n", "the real init, as it was called");
    assert!(!root.join("headstart").exists(), "one headstart is enough");
    took
}

#[test]
fn process_1_waits_for_the_headstart_of_the_initramfs() {
    if !is_root() {
        return;
    }
    let pause = Duration::from_millis(400);
    let cases: [(Option<Duration>, &[&[u8]]); 4] = [
        (Some(pause), &[b"g"]),
        (Some(pause), &[b"w", b"ww", b"g"]),
        (Some(pause), &[b""]),
        (None, &[]),
    ];
    for (pause, words) in cases {
        let took = boot(pause, words);
        let least = pause.unwrap_or_default() * words.len() as u32;
        let most = least + PATIENCE;
        assert!(took >= least && took < most, "{pause:?} {words:?}: {took:?}");
    }
}

#[test]
fn the_unit_that_waits_at_the_barrier_goes_on_when_it_is_released_or_headstart_has_ended() {
    if !is_root() {
        return;
    }
    let unit = include_str!("../../../../packaging/systemd/headstart-barrier.service");
    let waits = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=-"))
        .unwrap();
    for word in [&b"g"[..], b""] {
        let dir = root();
        let pipe = dir.path().join("run/headstart/barrier");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut writer = File::options().read(true).write(true).open(&pipe).unwrap();
        let mut waiting = Command::new("chroot")
            .arg(dir.path())
            .args(waits.split(' '))
            .spawn()
            .unwrap();
        for still in [&b""[..], b"w"] {
            writer.write_all(still).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            assert!(waiting.try_wait().unwrap().is_none(), "it waits");
        }
        writer.write_all(word).unwrap();
        let begun = Instant::now();
        drop(writer);
        assert!(waiting.wait().unwrap().success());
        assert!(begun.elapsed() < PATIENCE, "not for its patience");
    }
}

#[test]
fn what_is_not_mounted_yet_is_mounted() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    for path in ["proc", "sys", "dev"] {
        fs::create_dir(root.join(path)).unwrap();
    }
    let command = root.join("usr/bin/headstart");
    fs::remove_file(&command).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &command).unwrap();
    fs::write(
        root.join("sbin/init"),
        "#!/host/bin/sh\n/host/bin/cp /proc/self/mounts /\n/host/bin/cp -a /run/headstart /left\n",
    )
    .unwrap();
    let begun = Instant::now();
    assert!(boots(root).status().unwrap().success());
    assert!(
        begun.elapsed() < PATIENCE,
        "it gave its word: {:?}",
        begun.elapsed()
    );
    let mounts = fs::read_to_string(root.join("mounts")).unwrap();
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
    ] {
        let there = mounts.lines().any(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            words[1] == place && words[2] == kind
        });
        assert!(there, "{place}: {mounts}");
    }
    let said = fs::read_to_string(root.join("left/last.json")).unwrap();
    assert!(said.contains("\"from\": \"init\""), "{said}");
}

/// Asks in the root as the unit does, not as process 1, whose own arguments are `words`; the status.
fn ask(root: &Path, words: &[&str]) -> Option<i32> {
    ask_after("", root, words)
}

/// The same after a script, of which the root is the first word.
fn ask_after(script: &str, root: &Path, words: &[&str]) -> Option<i32> {
    let script =
        format!("{script}\nmount -t proc proc \"$0/proc\"; chroot \"$0\" /usr/sbin/headstart-init --decide");
    process_1(root, &script, words).status().unwrap().code()
}

#[test]
fn what_is_needed_of_headstart_is_asked_for_while_it_is_decided_about_a_boot() {
    undisturbed(|| {
        if !can_mount() {
            return;
        }
        let made = root();
        let (init, command) = ("usr/sbin/headstart-init", "usr/bin/headstart");
        let fill = |at: &Path| {
            fs::create_dir_all(at.join("usr/sbin"))?;
            fs::create_dir_all(at.join("usr/bin"))?;
            fs::copy(made.path().join(init), at.join(init))?;
            fs::write(at.join(command), vec![7; 2 * OF_HEADSTART])
        };
        let mut disk = LoopFs::create(&Spec::new("ext4"), fill).unwrap();
        disk.remount_cold().unwrap();
        let root = disk.mount_point();
        // What leads to headstart, and from there to the state (`headstart_system::own_program`): pages of
        // the device that nothing else reads.
        let pages_of_device: [(&str, u32); 2] = [(init, 12_000), (command, 13_000)];
        let node = disk.node();
        for (file, page) in pages_of_device {
            let way = [node.as_os_str().as_encoded_bytes(), &[0], &page.to_le_bytes()].concat();
            let file = File::open(root.join(file)).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&file, "trusted.headstart", &way, flags).unwrap();
        }
        let device = File::open(&node).unwrap();
        let of_way = || {
            let of_page = |page| residency::resident_pages(&device, u64::from(page) * 4096, 4096).unwrap();
            pages_of_device.map(|(_, page)| of_page(page))
        };
        assert_eq!(of_way(), [0, 0]);
        let asked = Command::new(root.join(init))
            .arg("--decide")
            .current_dir(&root)
            .status();
        assert_eq!(asked.unwrap().code(), Some(0));
        let file = File::open(root.join(command)).unwrap();
        // Nothing is read ahead for this test.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let needed = OF_HEADSTART as u64;
        wait_resident(&file, needed).unwrap();
        let page = rustix::param::page_size() as u64;
        let resident = |from| residency::resident_pages(&file, from, needed).unwrap();
        // But for what the kernel takes from memory of its own accord meanwhile.
        let there = resident(0);
        assert!(there >= needed / page * 19 / 20, "{there} pages");
        assert_eq!(resident(needed), 0, "what nobody needs");
        assert_eq!(of_way(), [1, 1], "what leads to headstart, and to the state");
    });
}

#[test]
fn the_unit_is_not_started_where_nothing_is_known_and_nothing_could_be_kept() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    fs::create_dir(root.join("proc")).unwrap();
    let state = root.join("var/lib/headstart");
    fs::create_dir_all(&state).unwrap();
    let on = |size: &str, inodes: u32| {
        format!(
            "rm -f \"$0/i\"; truncate -s {size} \"$0/i\"; mkfs.ext4 -qF -N {inodes} \"$0/i\"; mount -o loop \"$0/i\" \"$0/var/lib/headstart\""
        )
    };
    let (small, few, wide) = (on("3M", 64), on("16M", 16), on("16M", 64));
    let memory = "mount -t tmpfs -o size=16m tmpfs \"$0/var/lib/headstart\"";
    assert_eq!(ask_after(&small, root, &[]), Some(1), "no bytes");
    assert_eq!(ask_after(&few, root, &[]), Some(1), "no inodes");
    assert_eq!(ask_after(&wide, root, &[]), Some(0));
    assert_eq!(ask_after(memory, root, &[]), Some(1), "it ends with this boot");
    assert_eq!(ask_after(memory, root, &["headstart=on"]), Some(0));
    assert_eq!(
        ask_after(&small, root, &["headstart=on"]),
        Some(0),
        "headstart reads what is wanted"
    );
    let directory = Store::new("var/lib/headstart").key(&Key::new("boot").unwrap());
    let directory = directory.path().display().to_string();
    let known = format!("{small}; mkdir -p \"$0/{directory}\"; : >\"$0/{directory}/plan\"");
    assert_eq!(
        ask_after(&known, root, &[]),
        Some(0),
        "what is known is read ahead"
    );
    fs::remove_dir(&state).unwrap();
    assert_eq!(ask(root, &[]), Some(0), "it may not be mounted yet");
}

#[test]
fn the_unit_is_not_started_where_boots_are_bypassed() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    fs::create_dir(root.join("proc")).unwrap();
    assert_eq!(ask(root, &[]), Some(0), "nothing is bypassed");
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_str().unwrap();
    let bypass = |every, kernel: &str| write_bypass(root, every, kernel);
    bypass(u32::MAX, kernel);
    assert_eq!(ask(root, &[]), Some(1));
    assert_eq!(ask(root, &["quiet", "noheadstart=on"]), Some(1));
    assert_eq!(
        ask(root, &["quiet", "headstart=on"]),
        Some(0),
        "headstart reads what is wanted"
    );
    bypass(1, kernel);
    assert_eq!(ask(root, &[]), Some(0), "every boot re-evaluates");
    bypass(u32::MAX, "5.10.0");
    assert_eq!(ask(root, &[]), Some(0), "another kernel");
    bypass(u32::MAX, kernel);
    let machine = root.join("etc/machine-id");
    for another in [
        "uninitialized\n",
        "",
        "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0\n",
    ] {
        fs::write(&machine, another).unwrap();
        assert_eq!(ask(root, &[]), Some(0), "another machine: {another:?}");
    }
    fs::remove_file(&machine).unwrap();
    assert_eq!(ask(root, &[]), Some(0), "no machine");
    bypass(u32::MAX, kernel);
    fs::create_dir_all(root.join("etc/headstart")).unwrap();
    let configuration = root.join("etc/headstart/headstart.toml");
    fs::write(&configuration, "").unwrap();
    assert_eq!(ask(root, &[]), Some(1), "nothing is configured");
    fs::write(
        &configuration,
        include_str!("../../../../packaging/headstart.toml"),
    )
    .unwrap();
    assert_eq!(ask(root, &[]), Some(1), "nor by what packages install");
    for configured in [
        "control_every = 0",
        "\n[boot] # of\n \tcontrol_every = 0\n",
        "# long".repeat(9999).as_str(),
    ] {
        let text = format!("{configured}\nx = 1");
        fs::write(&configuration, text).unwrap();
        assert_eq!(ask(root, &[]), Some(0), "headstart reads what is configured");
    }
}

#[test]
fn process_1_waits_for_a_time_and_not_for_a_number_of_words() {
    if !is_root() {
        return;
    }
    let many = [b'w'; 5000];
    let took = boot(Some(Duration::from_millis(400)), &[&many, &many, b"g"]);
    assert!(took >= Duration::from_millis(1200), "{took:?}");
}

#[test]
#[ignore = "takes the 200 s that process 1 waits at most"]
fn process_1_goes_on_while_words_keep_coming() {
    if !is_root() {
        return;
    }
    let dir = root();
    let pipe = dir.path().join("run/headstart/init");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut writer = File::options().read(true).write(true).open(&pipe).unwrap();
    let begun = Instant::now();
    let mut boot = boots(dir.path()).spawn().unwrap();
    while boot.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(300), "for ever");
        writer.write_all(b"w").unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(190),
        "{:?}",
        begun.elapsed()
    );
    assert!(dir.path().join("init").exists());
}

#[test]
fn who_is_executed_gets_no_descriptor_of_headstart_init() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    fs::create_dir(root.join("proc")).unwrap();
    // Those of the shell itself are from 10 on; the one by which it lists them is gone then.
    let tells = "for it in /proc/$$/fd/?; do test -e $it && echo ${it##*/}; done; true";
    for path in ["sbin/init", "usr/bin/headstart"] {
        let script = format!("#!/host/bin/sh\n{{ echo $*; {tells}; }} >/${{0##*/}}\n");
        fs::write(root.join(path), script).unwrap();
    }
    let script = "mount -t proc proc \"$0/proc\"; exec chroot \"$0\" /usr/sbin/headstart-init quiet";
    assert!(process_1(root, script, &[]).status().unwrap().success());
    let said = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(said("init"), "quiet\n0\n1\n2\n");
    let headstart = said("headstart");
    let words = headstart.lines().next().unwrap();
    let words = words.strip_prefix("boot run --init ").unwrap();
    let (pipe, began_ns) = words.split_once(" --began ").unwrap();
    assert_eq!(
        headstart,
        format!("boot run --init {pipe} --began {began_ns}\n0\n1\n2\n{pipe}\n")
    );
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let age_s = now.tv_sec - began_ns.parse::<i64>().unwrap() / 1_000_000_000;
    assert!((0..600).contains(&age_s), "{began_ns}");
}

#[test]
fn headstart_init_bypasses_the_boots_that_headstart_would() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    fs::create_dir(root.join("proc")).unwrap();
    let kept = Store::new(root.join("var/lib/headstart")).key(&Key::new("boot").unwrap());
    let running = rustix::system::uname();
    let running = running.release().to_str().unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/machine-id"), machine()).unwrap();
    let mut counts = [0; 2];
    for every in [0, 1, 2, 3, 4, 5, 7, 10, 40, u32::MAX] {
        for (kernel, machine, replay) in [
            (running, machine(), false),
            (running, machine(), true),
            ("5.10.0", machine(), false),
            (running, "another".into(), false),
        ] {
            let bypass = Bypass {
                every,
                kernel: kernel.into(),
                machine,
                replay,
                why: "no gain".into(),
            };
            let bypassed = Change {
                bypass: Some(Some(&bypass)),
                ..Change::default()
            };
            kept.lock().unwrap().change(&bypassed).unwrap();
            let decision = decide_boot(&kept.state(), Wish::Usual, &Config::default(), true);
            let bypassed = matches!(decision, Decision::Bypass(_));
            assert_eq!(ask(root, &[]), Some(bypassed.into()), "{bypass:?}: {decision:?}");
            counts[usize::from(bypassed)] += 1;
        }
    }
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

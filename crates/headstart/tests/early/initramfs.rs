//! The hooks of initramfs-tools and dracut, in a directory that stands for the initramfs, with the next root
//! below it; and what it starts.

use crate::common::is_root;
use crate::root::{process_1, root, write_bypass};
use headstart_model::Key;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, Request, RequestKind};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

/// A hook, and how its initramfs tells it where the next root is.
type Hook = (&'static str, &'static str);
const INITRAMFS_TOOLS: Hook = (
    include_str!("../../../../packaging/initramfs-tools/scripts/local-bottom/headstart"),
    "rootmnt=/root init=/sbin/init",
);
/// The same hook as live-boot runs it, which has laid a layer in memory over its medium.
const LIVE_BOOT: Hook = (INITRAMFS_TOOLS.0, "rootmnt=/root init=/sbin/init BOOT=live");
const DRACUT: Hook = (
    include_str!("../../../../packaging/dracut/90headstart/headstart.sh"),
    "NEWROOT=/root hookdir=/hooks",
);
/// What begins to read by a list, and ends that where there is a plan.
const PREMOUNT: &str = include_str!("../../../../packaging/initramfs-tools/scripts/local-premount/headstart");
const STAMP: &str = "run/initramfs/fsck-root";

/// What came of the hook: how headstart was started, and what initramfs-tools was told.
#[derive(Debug, PartialEq)]
struct Hooked {
    started: Option<String>,
    told: Option<String>,
    pipe: bool,
    /// Whether the unit is told that the boot is bypassed: in the initramfs, or in the next root.
    bypassed: [bool; 2],
    /// Whether systemd is, where that is what follows.
    is_said: [bool; 2],
    /// Whether these were ended, of the processes in the file of those that read by a list: one that does,
    /// and another that has such a number by now.
    ended: [bool; 2],
}

/// Runs it as its initramfs does, and waits for what it leaves in the background, which has its fourth
/// descriptor; after `change` to the next root and the initramfs, with `readonly` as the kernel command line
/// said.
fn hook((text, told): Hook, readonly: &str, cmdline: &str, change: impl Fn(&Path, &Path)) -> Hooked {
    let dir = tempfile::tempdir().unwrap();
    let initramfs = dir.path();
    for path in [
        "conf",
        "dev",
        "host",
        "proc",
        "run/headstart",
        "root",
        "usr/bin",
        "scripts/local-premount",
        "hooks/pre-mount",
    ] {
        fs::create_dir_all(initramfs.join(path)).unwrap();
    }
    for path in [
        "scripts/local-premount/headstart",
        "hooks/pre-mount/10-hydrate.sh",
    ] {
        fs::write(initramfs.join(path), PREMOUNT).unwrap();
    }

    for name in ["headstart-hydrate", "other"] {
        fs::copy("/usr/bin/sleep", initramfs.join("usr/bin").join(name)).unwrap();
    }
    for path in ["lib", "lib64"] {
        symlink(Path::new("host").join(path), initramfs.join(path)).unwrap();
    }
    fs::write(initramfs.join("hook"), text).unwrap();
    fs::write(initramfs.join("cmdline"), cmdline).unwrap();
    let next = root();
    let command = "#!/host/bin/sh\necho \"$0 $*, $HEADSTART_INITRAMFS in $(pwd)\" >/started\n";
    fs::write(next.path().join("usr/bin/headstart"), command).unwrap();
    change(next.path(), initramfs);
    // Who is not ended by SIGTERM is by SIGVTALRM, whose number is higher: the kernel delivers the lower
    // first.
    let script =
        "mount --bind \"$1\" \"$0/root\"; mount -t proc proc \"$0/proc\"; mount -t devtmpfs dev \"$0/dev\"
        mount --bind \"$0/cmdline\" \"$0/proc/cmdline\"
        PATH=/host/usr/bin:/host/bin readonly=$2 \
            /usr/bin/env $3 /usr/sbin/chroot \"$0\" /host/bin/sh -ec '
                /usr/bin/headstart-hydrate 600 & hydrate=$!
                /usr/bin/other 600 & other=$!
                printf \"%s\\n\" $other 4194303 $hydrate >/run/headstart/hydrate
                /host/bin/sh /hook 4>&1 | cat
                exec 2>/dev/null; kill -VTALRM $hydrate $other || true
                wait $hydrate || echo $? >>/ended; wait $other || echo $? >>/ended'";
    let words = [next.path().to_str().unwrap(), readonly, told];
    assert!(process_1(initramfs, script, &words).status().unwrap().success());
    let read = |path: &str| fs::read_to_string(initramfs.join(path)).ok();
    let pipe = fs::metadata(initramfs.join("run/headstart/init"));
    Hooked {
        started: read("started"),
        told: read("conf/param.conf"),
        pipe: pipe.is_ok_and(|facts| facts.file_type().is_fifo()),
        bypassed: [initramfs, next.path()].map(|root| root.join("run/headstart/bypassed").exists()),
        is_said: [initramfs, next.path()].map(|root| is_said(&root.join("run/systemd/system"))),
        ended: ended(&read("ended").unwrap()),
    }
}

/// Whether two processes were ended by SIGTERM, by what their shell says of them.
fn ended(statuses: &str) -> [bool; 2] {
    let statuses: Vec<&str> = statuses.lines().collect();
    let [hydrate, other] = statuses[..] else {
        panic!("{statuses:?}")
    };
    [hydrate, other].map(|status| match status {
        "143" => true,
        "154" => false,
        _ => panic!("{statuses:?}"),
    })
}

const NOTHING: Hooked = Hooked {
    started: None,
    told: None,
    pipe: false,
    bypassed: [false, false],
    is_said: [false, false],
    ended: [false, false],
};

/// Whether systemd is told of a bypassed boot, by what everybody may read.
fn is_said(units: &Path) -> bool {
    let file = units.join("headstart-boot.service.d/this-boot.conf");
    let Ok(text) = fs::read_to_string(&file) else {
        return false;
    };
    assert!(
        text.contains("\nDescription=headstart bypasses this boot "),
        "{text}"
    );
    assert!(text.ends_with("\nExecStart=\nExecStop=/bin/true\n"), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::metadata(units).unwrap().permissions().mode() & 0o777, 0o755);
    let barrier = fs::read_link(units.join("headstart-barrier.service")).unwrap();
    barrier == Path::new("/dev/null")
}

/// The next root's init is systemd.
fn with_systemd(root: &Path) {
    fs::create_dir_all(root.join("sbin")).unwrap();
    let _ = fs::remove_file(root.join("sbin/init"));
    symlink("/lib/systemd/systemd", root.join("sbin/init")).unwrap();
}

fn as_it_is(_root: &Path, _initramfs: &Path) {}

fn switched_off(root: &Path, _initramfs: &Path) {
    fs::remove_file(root.join("etc/systemd/system/sysinit.target.wants/headstart-boot.service")).unwrap();
}

/// Boots are read ahead there, as the copy of the plan says.
fn with_a_plan(root: &Path, _initramfs: &Path) {
    let starts = root.join("var/lib/headstart/starts");
    fs::create_dir_all(&starts).unwrap();
    fs::write(starts.join(headstart_store::NAME_OF_BOOTS), "plan").unwrap();
}

/// Nothing was learned yet, and the boot-failure guard is there.
fn with_a_guard(root: &Path, _initramfs: &Path) {
    let starts = root.join("var/lib/headstart/starts");
    fs::create_dir_all(&starts).unwrap();
    fs::write(
        starts.join(format!("{}.guard", headstart_store::NAME_OF_BOOTS)),
        [b'1'; 4096],
    )
    .unwrap();
}

fn is_bypassed(root: &Path, _initramfs: &Path) {
    let kernel = rustix::system::uname();
    write_bypass(root, u32::MAX, kernel.release().to_str().unwrap());
}

/// The same, but it takes so long to find out that /run has been moved meanwhile.
fn bypassed_late(root: &Path, _initramfs: &Path) {
    let program = "#!/host/bin/sh\ncase $1 in --whole) echo whole; exit ;; esac\n/host/bin/rm -r /run/headstart\nexit 1\n";
    fs::write(root.join("usr/sbin/headstart-init"), program).unwrap();
}

/// As a power cut leaves what was not written yet: so much of headstart-init, or all of it without contents.
fn cut_off(root: &Path, length: Option<u64>) {
    let program = root.join("usr/sbin/headstart-init");
    let size = fs::metadata(&program).unwrap().len();
    assert!(size > 5000, "{size}");
    let file = fs::File::options().write(true).open(program).unwrap();
    file.set_len(length.unwrap_or(0)).unwrap();
    if length.is_none() {
        file.set_len(size).unwrap();
    }
}

fn stamp(initramfs: &Path) {
    fs::create_dir_all(initramfs.join("run/initramfs")).unwrap();
    fs::write(initramfs.join(STAMP), "").unwrap();
}

#[test]
fn the_hook_starts_headstart_and_has_the_real_init_wait_where_the_root_can_be_written() {
    if !is_root() {
        return;
    }
    let hook =
        |readonly, cmdline, change: &dyn Fn(&Path, &Path)| hook(INITRAMFS_TOOLS, readonly, cmdline, change);
    let started = |pipe: &str| {
        Some(format!(
            "./usr/bin/headstart boot run --next-root ., {pipe} in /root\n"
        ))
    };
    let waits = Hooked {
        started: started("3"),
        told: Some("init=/usr/sbin/headstart-init\n".into()),
        pipe: true,
        ..NOTHING
    };
    let nobody_waits = Hooked {
        started: started(""),
        ..NOTHING
    };
    assert_eq!(hook("n", "quiet", &as_it_is), waits);
    assert_eq!(hook("y", "quiet", &|_, initramfs| stamp(initramfs)), waits);
    assert_eq!(hook("y", "quiet", &as_it_is), nobody_waits, "not checked");
    assert_eq!(
        hook("n", "ro headstart=off quiet", &as_it_is),
        NOTHING,
        "switched off for this boot"
    );
    assert_eq!(hook("n", "quiet", &switched_off), NOTHING, "switched off");
    assert_eq!(
        hook("n", "quiet nr_cpus=1 elfcorehdr=0x6f000000", &as_it_is),
        NOTHING,
        "the kernel that saves the memory of one that has crashed"
    );
    let live = |cmdline| super::initramfs::hook(LIVE_BOOT, "y", cmdline, as_it_is);
    assert_eq!(live("boot=live components quiet"), waits, "of a live medium");
    assert_eq!(live("boot=live components quiet headstart=off"), NOTHING);
    // Nobody waits in a program that cannot be executed, or not to its end: the machine would not boot.
    for length in [Some(0), Some(200), Some(5000), None] {
        let change = |root: &Path, _: &Path| cut_off(root, length);
        assert_eq!(hook("n", "quiet", &change), nobody_waits, "{length:?}");
    }
    let bypassed = Hooked {
        started: None,
        bypassed: [true, false],
        ..waits
    };
    assert_eq!(
        hook("n", "quiet", &is_bypassed),
        bypassed,
        "the end of the pipe is a word"
    );
    let told_late = Hooked {
        bypassed: [false, true],
        ..NOTHING
    };
    assert_eq!(hook("y", "quiet", &bypassed_late), told_late);
    let is_said = |change: &dyn Fn(&Path, &Path)| {
        let before_systemd = |root: &Path, initramfs: &Path| {
            with_systemd(root);
            change(root, initramfs);
        };
        hook("y", "quiet", &before_systemd).is_said
    };
    assert_eq!(is_said(&is_bypassed), [true, false]);
    assert_eq!(is_said(&bypassed_late), [false, true]);
    assert_eq!(is_said(&as_it_is), [false, false], "headstart says it itself");
}

#[test]
fn the_hooks_end_reading_by_a_list_where_there_is_a_plan() {
    if !is_root() {
        return;
    }
    let off = |root: &Path, initramfs: &Path| {
        with_a_plan(root, initramfs);
        switched_off(root, initramfs);
    };
    let by_the_plan = |which, change: &dyn Fn(&Path, &Path)| {
        let hooked = hook(which, "n", "quiet", change);
        (hooked.started.is_some(), hooked.ended)
    };
    for which in [INITRAMFS_TOOLS, LIVE_BOOT, DRACUT] {
        assert_eq!(by_the_plan(which, &with_a_plan), (true, [true, false]));
        assert_eq!(by_the_plan(which, &with_a_guard), (true, [false, false]));
        assert_eq!(by_the_plan(which, &off), (false, [false, false]));
    }
}

#[test]
fn the_hook_of_dracut_starts_headstart_and_has_who_is_asked_for_wait() {
    if !is_root() {
        return;
    }
    let hook = |cmdline, change: &dyn Fn(&Path, &Path)| hook(DRACUT, "y", cmdline, change);
    let started = |pipe: &str| Some(format!("//@headstart boot run --next-root ., {pipe} in /root\n"));
    let nobody_waits = Hooked {
        started: started(""),
        ..NOTHING
    };
    let waits = Hooked {
        started: started("3"),
        pipe: true,
        ..NOTHING
    };
    let init = "ro init=/usr/sbin/headstart-init quiet";
    assert_eq!(hook("ro quiet", &as_it_is), nobody_waits);
    assert_eq!(hook(init, &as_it_is), waits);
    assert_eq!(hook("ro headstart=off", &as_it_is), NOTHING);
    assert_eq!(hook("ro quiet", &switched_off), NOTHING);
    let only_the_unit_is_told = Hooked {
        bypassed: [true, false],
        ..NOTHING
    };
    let told_late = Hooked {
        bypassed: [false, true],
        ..NOTHING
    };
    assert_eq!(hook("ro quiet", &is_bypassed), only_the_unit_is_told);
    assert_eq!(hook("ro quiet", &bypassed_late), told_late);
    // Where the initramfs has systemd.
    let is_said = |root: &Path, initramfs: &Path| {
        fs::create_dir_all(initramfs.join("run/systemd/system")).unwrap();
        is_bypassed(root, initramfs);
    };
    assert_eq!(hook("ro quiet", &is_said).is_said, [true, false]);
    let bypassed = Hooked {
        started: None,
        bypassed: [true, false],
        ..waits
    };
    assert_eq!(
        hook(init, &is_bypassed),
        bypassed,
        "the end of the pipe is a word"
    );
}

/// Starts headstart below a root that was checked and is still read-only, with a plan and the boot-failure
/// guard armed, then moves that root, so that its path leads elsewhere, and then /proc to it. It is told that
/// process 1 waits, or not; and process 1 is headstart-init, or not. What it says of the boot, and whether
/// the guard is still armed.
fn enter(told: bool, waits: bool) -> (String, bool) {
    let (next, moved) = (root(), tempfile::tempdir().unwrap());
    let next = next.path();
    let kept = next
        .join("var/lib/headstart/keys")
        .join(headstart_store::NAME_OF_BOOTS);
    fs::create_dir_all(&kept).unwrap();
    let cost = Cost {
        class: DeviceClass::Flash,
        bandwidth: 1e9,
        latency: 1e-4,
        depth: 8,
    };
    let plan = PlanDraft {
        cut: 1,
        devices: vec![PlanDevice::new("/".into(), cost)],
        requests: vec![Request::new(RequestKind::Metadata, NO_FILE, 4096)],
        ..PlanDraft::new(Key::new("boot").unwrap(), rustix::param::page_size() as u32)
    };
    fs::write(kept.join("plan"), plan.to_bytes().unwrap()).unwrap();
    let starts = next.join("var/lib/headstart/starts");
    fs::create_dir_all(&starts).unwrap();
    fs::write(
        starts.join(format!("{}.guard", headstart_store::NAME_OF_BOOTS)),
        [b'1'; 4096],
    )
    .unwrap();
    fs::create_dir_all(next.join("etc")).unwrap();
    fs::write(next.join("etc/fstab"), "/dev/sda / ext4 noatime 0 1\n").unwrap();
    stamp(next);
    // The real init lasts as long as somebody still looks.
    let init = "#!/host/bin/sh\nuntil test -e /run/looked; do /host/bin/sleep 0.05; done\n";
    fs::write(next.join("sbin/init"), init).unwrap();
    // A file system of its own, for one that is remounted.
    let script = "moved=$2; next=$moved/next; left=$moved/left; mkdir $next $left; mount -t tmpfs next $next
        for path in etc lib lib64 run sbin usr var; do cp -a $0/$path $next; done
        mkdir $next/host $next/proc; mount --bind / $next/host; mount -t tmpfs run $next/run; cp -a $0/run/. $next/run
        mkfifo $next/run/headstart/init; exec 3<>$next/run/headstart/init; mount -o remount,ro $next
        {
            cd $next; env $3 timeout 60 $1 boot run --next-root . 2>&1 & cd /
            exec 3>&-; sleep 0.3; mkdir $moved/root; mount --move $next $moved/root; next=$moved/root
            mount -t proc proc $next/proc
            for i in $(seq 600); do test -s $next/run/headstart/last.json && break; sleep 0.05; done
            kill $!; wait $! || true
            cp $next/run/headstart/last.json $left; cp $next/var/lib/headstart/starts/*.guard $left/guard
            touch $next/run/looked
        } &
        exec 3>&-; until test -e $moved/root/proc/self; do sleep 0.01; done
        case $4 in waits) exec chroot $moved/root /usr/sbin/headstart-init ;; esac; wait";
    let told = match told {
        true => "HEADSTART_INITRAMFS=3",
        false => "HEADSTART_INITRAMFS=",
    };
    let words = [
        env!("CARGO_BIN_EXE_headstart"),
        moved.path().to_str().unwrap(),
        told,
        if waits { "waits" } else { "has gone on" },
    ];
    assert!(process_1(next, script, &words).status().unwrap().success());
    let left = moved.path().join("left");
    let said = fs::read_to_string(left.join("last.json")).unwrap();
    let guard = fs::read(left.join("guard")).unwrap();
    (said, guard[0] == b'1')
}

#[test]
fn headstart_enters_the_root_that_its_directory_has_become_and_makes_it_writable_while_process_1_waits() {
    if !is_root() {
        return;
    }
    for waits in [true, false] {
        let (said, armed) = enter(waits, waits);
        assert!(said.contains("\"from\": \"initramfs\""), "{said}");
        assert!(said.contains(&format!("\"made_writable\": {waits}")), "{said}");
        assert_eq!(said.contains("\"mode\": \"replay\""), waits, "{said}");
        assert_eq!(
            armed, !waits,
            "the boot-failure guard is taken before a replay: {said}"
        );
    }
}

#[test]
fn the_root_is_not_made_writable_where_process_1_has_gone_on() {
    if !is_root() {
        return;
    }
    let (said, armed) = enter(true, false);
    assert!(said.contains("\"made_writable\": false") && armed, "{said}");
    assert!(said.contains("the boot-failure guard cannot be taken"), "{said}");
}

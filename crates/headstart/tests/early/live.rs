//! A boot of a live medium: an overlay of two SquashFS, the root's and one that holds what was learned, and
//! of a layer in memory.

use crate::common::is_root;
use crate::root::{process_1, root};
use headstart_model::Key;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{PlanDevice, PlanDraft, PlanFileEntry, Request, RequestKind};
use headstart_store::NAME_OF_BOOTS;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Where live-boot mounts the root's image.
const IMAGE: &str = "/run/live/rootfs/filesystem.squashfs";
const SIZE: u64 = 1 << 20;

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let copied = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to)
        .status()?;
    assert!(copied.success());
    Ok(())
}

/// The image of a root with headstart and a file of this size.
fn image() -> LoopFs {
    let root = root();
    let command = root.path().join("usr/bin/headstart");
    fs::remove_file(&command).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &command).unwrap();
    for path in ["dev", "proc", "sys"] {
        fs::create_dir_all(root.path().join(path)).unwrap();
    }
    fs::write(root.path().join("data"), vec![7; SIZE as usize]).unwrap();
    LoopFs::create(&Spec::new("squashfs"), |tree| copy(root.path(), tree)).unwrap()
}

/// The image of a state whose plan reads that file, with the boot-failure guard armed and a control due.
fn state(file: &Path) -> LoopFs {
    let facts = fs::metadata(file).unwrap();
    let cost = Cost {
        class: DeviceClass::Flash,
        bandwidth: 30e6,
        latency: 1e-3,
        depth: 1,
    };
    let file = PlanFileEntry {
        path: format!("{IMAGE}/data").as_str().into(),
        device: 0,
        inode: facts.ino(),
        generation: 0,
        size: facts.size(),
        mtime_ns: facts.mtime() * 1_000_000_000,
    };
    let plan = PlanDraft {
        cut: 1,
        budget: 64 << 20,
        devices: vec![PlanDevice::new(IMAGE.into(), cost)],
        files: vec![file],
        requests: vec![Request::new(RequestKind::Data, 0, SIZE)],
        ..PlanDraft::new(Key::new("boot").unwrap(), rustix::param::page_size() as u32)
    };
    let fill = |tree: &Path| {
        let state = tree.join("var/lib/headstart");
        let kept = state.join("keys").join(NAME_OF_BOOTS);
        fs::create_dir_all(&kept)?;
        fs::create_dir_all(state.join("starts"))?;
        fs::write(kept.join("plan"), plan.to_bytes().unwrap())?;
        fs::write(kept.join("turns"), "{\"replays_since_control\": 9}")?;
        fs::write(state.join(format!("starts/{NAME_OF_BOOTS}.guard")), [b'1'; 4096])
    };
    LoopFs::create(&Spec::new("squashfs"), fill).unwrap()
}

/// Boots from a medium that is mounted by these commands at `$medium`; what headstart says of the boot.
fn boot(mount_medium: &str) -> String {
    let image = image();
    let state = state(&image.mount_point().join("data"));
    let dir = tempfile::tempdir().unwrap();
    for path in ["host", "upper", "root"] {
        fs::create_dir(dir.path().join(path)).unwrap();
    }
    let script = format!(
        "image=$1 state=$2 root=$0/root
        mount -t tmpfs upper $0/upper; mkdir $0/upper/rw $0/upper/work $0/upper/lower
        mount -o loop,ro $image $0/upper/lower
        mount -t overlay -o lowerdir=$state:$0/upper/lower,upperdir=$0/upper/rw,workdir=$0/upper/work live $root
        mount --bind / $root/host; mount -t proc proc $root/proc; mount --bind /dev $root/dev; mount --bind /sys $root/sys; mount -t tmpfs run $root/run
        medium=$root/run/live/medium lower=$root{IMAGE}; mkdir -p $medium $lower
        {mount_medium}
        timeout 60 chroot $root /usr/bin/headstart boot run 2>$0/log &
        for i in $(seq 600); do grep -q mode $root/run/headstart/last.json 2>/dev/null && break; sleep 0.05; done
        sleep 1; kill $!; wait $! || true; cp $root/run/headstart/last.json $0"
    );
    let words = [image.image(), state.mount_point()];
    let words = words.each_ref().map(|word| word.to_str().unwrap());
    let booted = process_1(dir.path(), &script, &words).status().unwrap();
    let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    assert!(booted.success(), "{log}");
    fs::read_to_string(dir.path().join("last.json")).unwrap()
}

#[test]
fn a_boot_by_a_plan_that_lies_over_the_image_is_read_ahead_not_recorded_and_never_a_control() {
    if !is_root() || !can_mount() {
        return;
    }
    let said = boot("mount --bind $0/upper/lower $lower");
    assert!(said.contains("\"mode\": \"replay\""), "{said}");
    assert!(said.contains("\"not_replayed\": null"), "{said}");
    assert!(said.contains("\"recorder\": null"), "{said}");
}

#[test]
fn a_boot_from_a_medium_that_was_copied_into_memory_is_not_read_ahead() {
    if !is_root() || !can_mount() {
        return;
    }
    let said =
        boot("mount -t tmpfs medium $medium; cp $image $medium/image; mount -o loop,ro $medium/image $lower");
    assert!(said.contains("lies in memory, as a live medium"), "{said}");
    assert!(said.contains("\"recorder\": null"), "{said}");
}

//! The hook of initramfs-tools and dracut that touches a volume before the root is mounted, in a directory
//! that stands for the initramfs.

use crate::common::is_root;
use crate::root::process_1;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const HOOK: &str = include_str!("../../../../packaging/initramfs-tools/scripts/local-premount/headstart");
const UUID: &str = "0fa2f4b9-1f94-45b4-9fe1-ec5e77089ecf";

/// What the hook started, of lists with these texts, and whether the boot goes on: as initramfs-tools
/// executes it and as dracut sources it. Their numbers are where the hook looks for them that begins
/// headstart.
fn started(lists: &[(&str, String)], cmdline: &str, how: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let initramfs = dir.path();
    for path in [
        "dev",
        "host",
        "proc",
        "run",
        "usr/bin",
        "usr/lib/headstart/ranges",
    ] {
        fs::create_dir_all(initramfs.join(path)).unwrap();
    }
    for path in ["lib", "lib64"] {
        symlink(Path::new("host").join(path), initramfs.join(path)).unwrap();
    }
    fs::write(initramfs.join("hook"), HOOK).unwrap();
    fs::write(initramfs.join("cmdline"), cmdline).unwrap();
    // It fails, as a list of another volume has it do.
    let program = initramfs.join("usr/bin/headstart-hydrate");
    fs::write(
        &program,
        "#!/host/bin/sh\necho \"${0##*/} $*\" >>/started\necho $$ >>/numbers\nexit 1\n",
    )
    .unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in lists {
        fs::write(initramfs.join("usr/lib/headstart/ranges").join(name), text).unwrap();
    }
    let script = "mount -t proc proc \"$0/proc\"; mount -t tmpfs tmpfs \"$0/dev\"; mkdir -p \"$0/dev/disk/by-uuid\"
        : >\"$0/dev/null\"; : >\"$0/dev/disk/by-uuid/$1\"; mount --bind \"$0/cmdline\" \"$0/proc/cmdline\"
        PATH=/host/usr/bin:/host/bin /usr/sbin/chroot \"$0\" /host/bin/sh -c \"$2; echo goes on >>/ended\"; sleep 0.3";
    assert!(
        process_1(initramfs, script, &[UUID, how])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(fs::read_to_string(initramfs.join("ended")).unwrap(), "goes on\n");
    let read = |path: &str| fs::read_to_string(initramfs.join(path)).unwrap_or_default();
    assert_eq!(read("run/headstart/hydrate"), read("numbers"));
    read("started")
}

#[test]
fn the_hook_touches_the_volumes_that_lists_name_and_are_there() {
    if !is_root() {
        return;
    }
    let list =
        |uuid: &str| format!("headstart-ranges 1\n# of this image\nuuid {uuid}\nsize 4096\nblock 512\nend\n");
    let lists = [
        ("root.ranges", list(UUID)),
        ("absent.ranges", list("00000000-1f94-45b4-9fe1-ec5e77089ecf")),
        ("hostile.ranges", list("../../null")),
        ("empty.ranges", String::new()),
        ("other", list(UUID)),
    ];
    let expected =
        format!("@headstart-hydrate /usr/lib/headstart/ranges/root.ranges /dev/disk/by-uuid/{UUID}\n");
    for how in ["/host/bin/sh /hook", ". /hook"] {
        assert_eq!(started(&lists, "quiet", how), expected, "{how}");
        assert_eq!(started(&lists, "ro headstart=off quiet", how), "", "{how}");
        assert_eq!(started(&lists, "quiet elfcorehdr=0x6f000000", how), "", "{how}");
        assert_eq!(started(&[], "quiet", how), "", "{how}");
    }
    assert_eq!(started(&lists, "quiet", "/host/bin/sh /hook prereqs"), "");
}

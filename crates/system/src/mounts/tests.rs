use super::*;

const TABLE: &[u8] = b"27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 0:21 / /proc rw - proc proc rw
30 27 7:0 / /mnt/a\\040b rw shared:3 master:1 - ext4 /dev/loop0 rw
31 27 7:0 /sub /bind rw - ext4 /dev/loop0 rw
32 27 0:40 / /net rw - nfs4 server:/x rw
33 27 0:41 /@home /home rw - btrfs /dev/loop1 rw,subvol=/@home
34 33 0:42 / /home/cd rw - overlay overlay rw,lowerdir=/mnt/a\\040b/l1:/l\\134:2,upperdir=/tmp/u,workdir=/tmp/w
35 27 0:43 / /tmp rw - tmpfs tmpfs rw
36 35 7:3 / /tmp rw - xfs /dev/loop3 rw
37 27 0:44 / /remote rw - overlay overlay rw,lowerdir+=/net/l,lowerdir+=/l2
38 27 7:5 / /mnt rw - ext4 /dev/loop5 rw
";

fn fstype(path: &str) -> String {
    MountTable::parse(TABLE)
        .lookup(path.as_bytes())
        .unwrap()
        .fstype
        .clone()
}

#[test]
fn a_path_leads_to_the_mount_that_covers_it() {
    assert_eq!(fstype("/usr/bin"), "ext4");
    assert_eq!(fstype("/proc"), "proc");
    assert_eq!(fstype("/proc/1/maps"), "proc");
    assert_eq!(fstype("/process"), "ext4");
    assert_eq!(fstype("/net/a/b"), "nfs4");
    assert_eq!(fstype("/"), "ext4");
}

#[test]
fn the_upper_of_two_stacked_mounts_counts() {
    assert_eq!(fstype("/tmp/x"), "xfs");
}

#[test]
fn a_mount_hides_what_was_mounted_below_it_before() {
    let table = MountTable::parse(TABLE);
    assert_eq!(table.lookup(b"/mnt/a b/x").unwrap().id, 38);
    let ways = table.ways_to(7, 0, b"/other", 8);
    assert_eq!(ways.len(), 1, "hidden, and the only one");
}

#[test]
fn a_bind_mount_shows_files_by_their_place_in_the_file_system() {
    let table = MountTable::parse(TABLE);
    let best = |minor: (u32, u32), path: &[u8]| {
        let ways = table.ways_to(minor.0, minor.1, path, 8).into_iter();
        ways.map(|(_, path)| path).next()
    };
    assert_eq!(best((7, 0), b"/sub/f"), Some("/bind/f".into()));
    assert_eq!(best((0, 41), b"/@home/u/f"), Some("/home/u/f".into()));
    assert_eq!(best((0, 41), b"/@root/f"), None);
    assert_eq!(best((254, 0), b"/usr"), Some("/usr".into()));
}

#[test]
fn a_file_of_a_layer_is_known_by_its_path_on_the_overlay() {
    let table = MountTable::parse(TABLE);
    for layer in ["/tmp/u/etc/x", "/mnt/a b/l1/etc/x", "/l:2/etc/x"] {
        assert_eq!(
            table.overlay_paths_of(layer.as_bytes()),
            [FilePath::from("/home/cd/etc/x")],
            "{layer}"
        );
    }
    assert_eq!(table.overlay_paths_of(b"/etc/x"), []);
}

#[test]
fn an_overlay_is_as_local_as_its_layers() {
    let table = MountTable::parse(TABLE);
    let local = |path: &[u8]| table.is_local(table.lookup(path).unwrap());
    assert!(local(b"/home/cd"));
    assert!(!local(b"/remote/x"));
    assert!(!local(b"/proc/1"));
    assert!(local(b"/home/u"));
}

#[test]
fn local_file_systems_are_known_by_name() {
    for name in ["ext2", "ext4", "xfs", "btrfs", "squashfs", "erofs", "vfat"] {
        assert!(is_local(name), "{name}");
    }
    for name in [
        "tmpfs",
        "proc",
        "nfs",
        "nfs4",
        "cifs",
        "fuse",
        "fuse.sshfs",
        "fuseblk",
        "9p",
        "virtiofs",
        "autofs",
    ] {
        assert!(!is_local(name), "{name}");
    }
}

#[test]
fn remote_is_what_a_server_or_a_program_of_root_answers_for() {
    let remote = |fstype: &str, options: &str| {
        let line = format!("1 1 0:50 / /m rw - {fstype} x rw,{options}\n");
        MountTable::parse(line.as_bytes()).all()[0].is_remote
    };
    for name in ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "lustre"] {
        assert!(remote(name, "vers=4.2,addr=10.0.0.1"), "{name}");
        assert!(!inodes_last(name), "{name}");
    }
    for name in ["fuse", "fuseblk", "fuse.sshfs", "fuse.juicefs", "fuse.anything"] {
        assert!(remote(name, "user_id=0,group_id=0,allow_other"), "{name}");
        for other in [
            "user_id=1000,group_id=0",
            "user_id=00x",
            "group_id=0",
            "xuser_id=0",
        ] {
            assert!(!remote(name, other), "{name} {other}");
        }
    }
    // The name of a source or a type that only begins alike is none.
    for name in [
        "ext4",
        "tmpfs",
        "proc",
        "autofs",
        "overlay",
        "fusectl",
        "fuse.lxcfs",
        "nfsd",
    ] {
        assert!(!remote(name, "user_id=0"), "{name}");
    }
}

#[test]
fn remote_file_systems_are_local_to_nobody_here() {
    let table =
        MountTable::parse(b"1 1 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /net rw - nfs4 server:/ rw\n");
    let net = table.lookup(b"/net/a").unwrap();
    assert!(net.is_remote && !table.is_local(net) && table.kind(net, LAYERS) == Kind::Other);
}

#[test]
fn of_thousands_that_are_stacked_at_one_place_the_uppermost_is_found_at_once() {
    let mut text = "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n".to_owned();
    let last = 100 + 20_000;
    for id in 100..=last {
        let below = if id == 100 { 20 } else { id - 1 };
        text += &format!("{id} {below} 7:0 / /mnt rw - ext4 /dev/loop0 rw\n");
    }
    let table = MountTable::parse(text.as_bytes());
    assert_eq!(table.lookup(b"/mnt/x/y").unwrap().id, last);
    assert_eq!(table.lookup(b"/mnt").unwrap().id, last);
    assert_eq!(table.lookup(b"/mn").unwrap().id, 20);
    assert_eq!(table.ways_to(7, 0, b"/usr/lib/x", 1)[0].1, "/usr/lib/x".into());
}

#[test]
fn nonsense_is_left_out() {
    let table = MountTable::parse(
        b"\n1 2\nx y z\n1 1 8:1 / / rw - ext4\n5 5 8:1 / / rw - ext4 /dev/sda1 rw\n6 5 8:x / / - a b c",
    );
    assert_eq!(table.all().len(), 1);
    assert_eq!(unescape(b"a\\040b\\134\\9\\"), b"a b\\\\9\\");
}

#[test]
fn this_process_has_a_root() {
    let table = MountTable::read().unwrap();
    assert!(table.lookup(b"/").is_some());
    assert!(!table.is_local(table.lookup(b"/proc/self").unwrap()));
}

proptest::proptest! {
    /// Whatever the table and the path, an answer.
    #[test]
    fn no_table_and_no_path_crash(
        ids in proptest::collection::vec((0u32..6, 0u32..6, "/?[ab/]{0,6}", "(ext4|overlay|nfs)", "[a-z=:,/\\\\0134+]{0,30}"), 0..8),
        path in "[ab/.]{0,12}",
    ) {
        let line = |(id, parent, point, fstype, options): &(u32, u32, String, String, String)| {
            format!("{id} {parent} 8:{id} / {point} rw - {fstype} x lowerdir={options},upperdir={point}\n")
        };
        let table = MountTable::parse(ids.iter().map(line).collect::<String>().as_bytes());
        let path = path.as_bytes();
        if let Some(mount) = table.lookup(path) {
            table.is_local(mount);
        }
        table.overlay_paths_of(path);
        table.ways_to(8, 1, path, 8);
    }
}

//! By what path a file is recorded, whatever is mounted where, and what became of it.

use crate::bpf::{READ, help, write_pages};
use crate::support::*;
use headstart_model::trace::{FileState, LookupKind};
use headstart_system::testing::{Mounted, Scratch};
use std::fs;
use std::path::Path;

#[test]
fn what_became_of_a_file_is_told() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    for name in ["kept", "deleted", "renamed", "replaced", "reborn", "written"] {
        write_pages(&disk.join(name), 2, 0);
    }
    fs::hard_link(disk.join("kept"), disk.join("another-name")).unwrap();
    // ext4 gives the number of the removed file to the next one: only the generation tells them apart.
    let script = "cat kept deleted renamed replaced reborn; rm deleted; mv renamed moved; \
        echo new > temporary; mv temporary replaced; rm reborn; echo new > reborn; \
        echo 12345 > x; exec 6< x; rm x; cat <&6; echo new > made; cat made; echo new >> written; cat written";
    let trace = record(&format!("cd {}; {script}", disk.display()));
    let state = |name: &str| file(&trace, &disk.join(name)).map(|(_, f)| f.state);
    assert!(state("kept").or(state("another-name")) == Some(FileState::Present));
    assert_eq!(state("deleted"), Some(FileState::Deleted));
    assert_eq!(state("renamed"), None);
    assert_eq!(state("moved"), Some(FileState::Present));
    assert_eq!(state("replaced"), Some(FileState::Replaced));
    assert_eq!(state("reborn"), Some(FileState::Replaced));
    assert_eq!(state("x"), Some(FileState::Deleted), "read after it was unlinked");
    assert_eq!(state("made"), Some(FileState::Made));
    assert_eq!(state("written"), Some(FileState::Present));
}

#[test]
fn a_bind_mount_leads_to_the_real_place() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    fs::create_dir(disk.join("dir")).unwrap();
    write_pages(&disk.join("dir/file"), 2, 0);
    let bound = mounted.beside().join("bound");
    let _bound = Mounted::new(&["--bind", disk.join("dir").to_str().unwrap()], &bound).unwrap();
    let trace = record(&format!("cat {}", bound.join("file").display()));
    let (_, found) = file(&trace, &disk.join("dir/file")).unwrap();
    assert_eq!(found.state, FileState::Present);
    assert!(
        looked_up(&trace, &bound.join("file"), LookupKind::Open, true),
        "looked up as it was named"
    );
    // When the whole file system is mounted nowhere any more, the bind mount is the real place.
    let _within = Mounted::new(&["-t", "tmpfs", "none"], &disk.join("dir")).unwrap();
    let trace = record(&format!("cat {}", bound.join("file").display()));
    assert!(file(&trace, &bound.join("file")).is_some(), "{:?}", trace.files);
}

#[test]
fn an_overlay_is_seen_from_both_sides() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for name in ["lower", "upper", "work"] {
        fs::create_dir(disk.join(name)).unwrap();
    }
    write_pages(&disk.join("lower/below"), 2, 0);
    write_pages(&disk.join("upper/above"), 3, 0);
    let at = disk.display();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let merged = mounted.beside().join("merged");
    let _merged = Mounted::new(&["-t", "overlay", "overlay", "-o", &options], &merged).unwrap();
    let trace = record(&format!("cd {}; cat below above", merged.display()));
    for (name, real, count) in [("below", "lower/below", 2), ("above", "upper/above", 3)] {
        let (_, found) = file(&trace, &disk.join(real)).unwrap();
        assert_eq!(
            found.overlay.as_ref().map(|p| p.as_path().to_owned()),
            Some(merged.join(name))
        );
        assert_eq!(found.state, FileState::Present);
        assert_eq!(pages(&trace, &disk.join(real), READ).len(), count);
        assert!(looked_up(&trace, &merged.join(name), LookupKind::Open, true));
    }
}

#[test]
fn memory_is_noted_as_not_local() {
    if !can_record() {
        return;
    }
    let dir = Scratch::new().unwrap();
    let memory = dir.path().join("memory");
    let _memory = Mounted::new(&["-t", "tmpfs", "none"], &memory).unwrap();
    write_pages(&memory.join("file"), 40, 0);
    let trace = record(&help(&format!("touch {} 0 20", memory.join("file").display())));
    let (_, found) = file(&trace, &memory.join("file")).unwrap();
    let filesystem = &trace.filesystems[found.filesystem.unwrap() as usize];
    assert_eq!((filesystem.fstype.as_str(), filesystem.local), ("tmpfs", false));
    assert_eq!(found.state, FileState::Present);
}

#[test]
fn btrfs_subvolumes_are_kept_apart() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("btrfs");
    let at = disk.to_str().unwrap();
    run("btrfs", &["subvolume", "create", &format!("{at}/one")]);
    write_pages(&disk.join("one/file"), 5, 0);
    // The snapshot's file has the same inode number and generation.
    run(
        "btrfs",
        &[
            "subvolume",
            "snapshot",
            &format!("{at}/one"),
            &format!("{at}/two"),
        ],
    );
    let two = mounted.beside().join("two");
    let _two = Mounted::new(&["-o", "subvol=two", &node(&mounted)], &two).unwrap();
    let trace = record(&format!(
        "cat {at}/one/file; dd if={}/file of=/dev/null bs=4096 count=1 status=none",
        two.display()
    ));
    assert_eq!(pages(&trace, &disk.join("one/file"), READ).len(), 5);
    let through = if file(&trace, &two.join("file")).is_some() {
        two.join("file")
    } else {
        disk.join("two/file")
    };
    assert_eq!(pages(&trace, &through, READ).len(), 1);
    for path in [disk.join("one/file"), through] {
        let (_, found) = file(&trace, &path).unwrap();
        assert_eq!(found.state, FileState::Present);
        let filesystem = &trace.filesystems[found.filesystem.unwrap() as usize];
        assert_eq!((filesystem.fstype.as_str(), filesystem.local), ("btrfs", true));
    }
}

#[test]
fn a_changed_root_is_seen_through() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    fs::create_dir_all(disk.join("root/etc")).unwrap();
    write_pages(&disk.join("root/etc/file"), 2, 0);
    let trace = record(&help(&format!("chroot {}/root /etc/file", disk.display())));
    let path = disk.join("root/etc/file");
    assert_eq!(pages(&trace, &path, READ).len(), 2);
    assert!(looked_up(&trace, &path, LookupKind::Open, true));
    assert!(
        looked_up(&trace, &path, LookupKind::Stat, true),
        "relative, below the changed root"
    );
    assert!(!looked_up(&trace, Path::new("/etc/file"), LookupKind::Open, true));
}

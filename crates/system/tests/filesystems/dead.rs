//! Paths that lead, or have come to lead, to a file system whose server never answers. Needs root.

use headstart_system::mounts::MountTable;
use headstart_system::open::{Skip, pin, pin_cached};
use headstart_system::path_resolver::PathResolver;
use headstart_system::testing::{DeadMount, LoopFs, Scratch, Spec, can_mount};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Does something that must not hang. Generous: to hang is to hang for ever.
fn bounded<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || done.send(what()));
    waiting.recv_timeout(Duration::from_secs(30)).expect("it hangs")
}

/// What each way to look a path up says of it.
fn looks(mounts: &MountTable, path: &Path) -> [Result<(), Skip>; 3] {
    let (table, of) = (mounts.clone(), path.to_path_buf());
    let by_ring = bounded(move || {
        let (mut once, mut found) = (Some(((), of.clone())), None);
        match PathResolver::new(4) {
            Ok(mut resolver) => resolver
                .resolve_each(
                    &table,
                    || once.take(),
                    |(), pinned| found = Some(pinned.map(|_| ())),
                )
                .unwrap(),
            Err(_) => found = Some(pin(&table, &of).map(|_| ())),
        }
        found.unwrap()
    });
    // Where another mount begins, the kernel's memory of names ends: it says that it would have to look.
    let elsewhere = |skip| match skip {
        Skip::Cold => Skip::NotLocal,
        skip => skip,
    };
    let (table, of) = (mounts.clone(), path.to_path_buf());
    let (alone, cached) =
        bounded(move || (pin(&table, &of).map(|_| ()), pin_cached(&table, &of).map(|_| ())));
    [alone, cached.map_err(elsewhere), by_ring]
}

fn tree(root: &Path) -> (PathBuf, PathBuf) {
    let directory = root.join("a/b");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("file"), "x").unwrap();
    (directory.clone(), directory.join("file"))
}

#[test]
fn what_was_mounted_since_the_table_was_read_is_not_asked() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let (directory, file) = tree(scratch.path());
    let mounts = MountTable::read().unwrap();
    assert_eq!(looks(&mounts, &file), [Ok(()); 3]);
    let _dead = DeadMount::new(&directory).unwrap();
    for path in [&file, &directory, &directory.join("none")] {
        let skipped = looks(&mounts, path);
        assert_eq!(skipped, [Err(Skip::NotLocal); 3], "{}", path.display());
    }
    let now = MountTable::read().unwrap();
    assert_eq!(looks(&now, &file), [Err(Skip::NotLocal); 3]);
}

#[test]
fn a_dead_mount_over_a_whole_file_system_is_not_asked() {
    if !can_mount() {
        return;
    }
    let fs = LoopFs::create(&Spec::new("ext4"), |root| {
        tree(root);
        Ok(())
    })
    .unwrap();
    let file = fs.mount_point().join("a/b/file");
    let mounts = MountTable::read().unwrap();
    let _dead = DeadMount::new(&fs.mount_point()).unwrap();
    for path in [&file, &fs.mount_point()] {
        assert_eq!(
            looks(&mounts, path),
            [Err(Skip::NotLocal); 3],
            "{}",
            path.display()
        );
    }
}

#[test]
fn neither_links_nor_parents_lead_to_a_dead_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let (directory, _) = tree(scratch.path());
    let dead = scratch.path().join("dead");
    symlink(&dead, directory.join("link")).unwrap();
    symlink("../../dead", directory.join("relative")).unwrap();
    let _dead = DeadMount::new(&dead).unwrap();
    let mounts = MountTable::read().unwrap();
    let below = |name: &str| looks(&mounts, &directory.join(name));
    assert_eq!(below("link/file"), [Err(Skip::Symlink); 3]);
    assert_eq!(below("relative/file"), [Err(Skip::Symlink); 3]);
    // The table takes these for paths of the first mount; the kernel walks into the other, and is told not
    // to.
    assert_eq!(below("../../dead/file"), [Err(Skip::NotLocal); 3]);
    assert_eq!(below("../../dead"), [Err(Skip::NotLocal); 3]);
    assert_eq!(below("../..//./dead/x"), [Err(Skip::NotLocal); 3]);
}

#[test]
fn a_local_file_system_mounted_since_is_not_walked_into_either() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let (directory, file) = tree(scratch.path());
    let mounts = MountTable::read().unwrap();
    let bound = headstart_system::testing::Mounted::new(&["--bind", "/usr"], &directory).unwrap();
    assert_eq!(looks(&mounts, &file), [Err(Skip::NotLocal); 3]);
    assert_eq!(
        looks(&mounts, &bound.path().join("bin")),
        [Err(Skip::NotLocal); 3]
    );
    let now = MountTable::read().unwrap();
    assert_eq!(looks(&now, &bound.path().join("bin")), [Ok(()); 3]);
}

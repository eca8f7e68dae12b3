//! One user takes nothing from others. What concerns the daemon is in tests/daemon (users.rs, leased.rs).

use crate::common::{Case, NOBODY, can_record, is_root, lease};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel takes it away only after somebody has waited for it.
fn is_leased(path: &Path) -> bool {
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|line| line.contains(" LEASE ") && line.contains(&inode))
}

#[test]
fn a_planned_file_that_its_owner_has_leased_makes_no_start_wait() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let file = case.write("file", vec![7; 1 << 20]);
    case.write("other", vec![7; 1 << 20]);
    case.write("script", "cat other; [ -e leased ] || cat file");
    std::os::unix::fs::chown(&file, Some(NOBODY), None).unwrap();
    for turn in 0..4 {
        let leased = (turn >= 2).then(|| {
            case.write("leased", "");
            lease(&file)
        });
        case.evict("other");
        let ran = case.run("leases", &["sh", "script"]);
        assert_eq!((ran.code(), &*ran.err), (0, ""));
        assert_eq!(ran.out.len(), if turn < 2 { 2 << 20 } else { 1 << 20 });
        assert!(leased.is_none() || is_leased(&file), "somebody has waited for it");
    }
}

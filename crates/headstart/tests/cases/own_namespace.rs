//! Images that are mounted in the start's own mount namespace.

use crate::common::{Case, can_record, is_root};
use serde_json::Value;

/// The status of a start that mounts an image by itself, after so many starts; and what is known of the
/// image.
fn started(make: &str, mount: &str) -> Option<(Value, Value)> {
    if !is_root() || !can_record() {
        return None;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = dir.path().display();
    let script = format!(
        "cd {at} && mkdir -p m s/d && head -c 8M /dev/urandom >s/d/data && cp /usr/bin/perl s/p && {make} || exit 1
        for i in 1 2; do
            dd of=i oflag=nocache conv=notrunc,fdatasync count=0 status=none
            \"$H\" run --wait --control-every 0 --name n -- unshare --mount sh -c '{mount} && cat m/d/data >/dev/null && m/p -e 1' || exit 1
        done"
    );
    let ran = case.script(&script);
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let image = dir.path().join("i");
    let explained = case.json(&["explain", "--name", "n", "--json", image.to_str().unwrap()]);
    Some((case.json(&["status", "n", "--json"]), explained[0].clone()))
}

/// Bytes of a plan's requests for one file.
fn planned(explained: &Value) -> u64 {
    let requests = explained["requests"].as_array().unwrap();
    requests
        .iter()
        .map(|used| used[1]["length"].as_u64().unwrap())
        .sum()
}

fn is_read_ahead(make: &str) {
    let Some((status, image)) = started(make, "mount -o loop,ro i m") else {
        return;
    };
    assert!(planned(&image) >= 8 << 20, "{image}");
    let last = status["outcomes"].as_array().unwrap().last().unwrap();
    assert_eq!(last["used"]["unreachable_pages"], 0, "{last}");
    assert!(last["used"]["pages"].as_u64().unwrap() >= 2048, "{last}");
}

#[test]
fn an_erofs_that_only_the_start_sees_is_read_ahead_as_its_image() {
    is_read_ahead("mkfs.erofs i s >/dev/null 2>&1");
}

#[test]
fn a_squashfs_that_only_the_start_sees_is_read_ahead_as_its_image() {
    is_read_ahead("mksquashfs s i -quiet -noappend >/dev/null");
}

#[test]
fn an_ext4_that_only_the_start_sees_is_read_ahead_as_its_image() {
    is_read_ahead("truncate -s 64M i && mkfs.ext4 -qF -d s i");
}

/// Past the page cache nothing can be read ahead of an image: then `status` says so.
#[test]
fn what_cannot_be_read_ahead_is_told() {
    let mount =
        "L=$(losetup --read-only --direct-io=on --show --find i) && mount -o ro $L m && losetup --detach $L";
    let Some((status, image)) = started("truncate -s 64M i && mkfs.ext4 -qF -d s i", mount) else {
        return;
    };
    let last = status["outcomes"].as_array().unwrap().last().unwrap();
    assert!(
        last["used"]["unreachable_pages"].as_u64().unwrap() >= 2048,
        "{last}\n{image}"
    );
}

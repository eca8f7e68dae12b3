//! What is unmounted when the command ends is learned, and the unmount succeeds.

use crate::common::{Case, can_record, is_root};
use serde_json::Value;

/// Mounts an image, runs a command that uses it, and unmounts it at once; so often.
const STARTS: &str = r#"
for i in 1 2; do
    mount -o loop i m || exit 1
    "$H" run --name u -- sh -c "cat m/d/* >/dev/null; m/p -e 1" || exit 1
    umount m || echo busy
    [ -z "$(losetup -j i)" ] || echo attached
    n=0
    until [ "$("$H" status u --json | grep -c started_unix_ns)" -ge $i ] || [ $n -gt 300 ]; do sleep 0.1; n=$((n + 1)); done
done
mount -o loop i m || exit 1
"$H" explain --name u "$PWD/m/p" "$PWD/m/d/17" --json
umount m
"#;

fn run(image: &str) {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let begin = format!(
        "cd {} && mkdir -p m s/d && cp /usr/bin/perl s/p && for i in $(seq 300); do echo x >s/d/$i; done && {image} || exit 1\n",
        dir.path().display()
    );
    let script = format!("export H; exec unshare --mount --propagation private sh -c '{begin}{STARTS}'");
    let ran = case.script(&script);
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let begin = ran
        .out
        .find('[')
        .unwrap_or_else(|| panic!("{}{}", ran.out, ran.err));
    assert_eq!(&ran.out[..begin], "", "{}", ran.err);
    let explained: Value = serde_json::from_str(&ran.out[begin..]).unwrap();
    for one in explained.as_array().unwrap() {
        assert_eq!(one["prefetched"], true, "{one}");
        let because = one["because"].as_str().unwrap();
        assert!(!because.contains(" 0 B "), "{because}");
    }
}

#[test]
fn what_lay_on_an_ext4_that_was_unmounted_at_once_is_learned_and_planned() {
    run("truncate -s 64M i && mkfs.ext4 -qF -d s i");
}

#[test]
fn what_lay_in_a_squashfs_that_was_unmounted_at_once_is_learned_and_planned() {
    run("mksquashfs s i -quiet -noappend >/dev/null");
}

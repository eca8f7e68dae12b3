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
    until [ "$("$H" status u --json | grep -c elapsed_ns)" -ge $i ] || [ $n -gt 300 ]; do sleep 0.1; n=$((n + 1)); done
done
mount -o loop i m || exit 1
for file in p d/17; do echo "explained:"; "$H" explain --name u "$PWD/m/$file" --json; done
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
    let mut parts = ran.out.split("explained:\n");
    assert_eq!(parts.next(), Some(""), "{}", ran.err);
    for part in parts {
        let explained: Value = serde_json::from_str(part).unwrap();
        let requests = explained[0]["requests"].as_array().unwrap();
        let bytes: u64 = requests
            .iter()
            .map(|used| used[1]["length"].as_u64().unwrap())
            .sum();
        assert!(bytes > 0, "{explained}");
    }
    assert_eq!(ran.out.matches("explained:").count(), 2);
}

#[test]
fn what_lay_on_an_ext4_that_was_unmounted_at_once_is_learned_and_planned() {
    run("truncate -s 64M i && mkfs.ext4 -qF -d s i");
}

#[test]
fn what_lay_in_an_erofs_that_was_unmounted_at_once_is_learned_and_planned() {
    run("mkfs.erofs i s >/dev/null 2>&1");
}

/// The command ends at once, while much is still to be read ahead: from a device without the page cache, so
/// that this takes its time. Each start has what was learned before the first, or the second would have
/// forgotten what the command does not use.
const ENDS_AT_ONCE: &str = r#"
mkdir m && truncate -s 400M i && mkfs.ext4 -qF -d s i || exit 1
attach() { loop=$(losetup --find --show --direct-io=on i) && mount "$loop" m && losetup --detach "$loop"; }
attach || exit 1
"$H" run --wait --control-every 0 --name u -- sh -c "for f in m/d/*; do cat \$f; done >/dev/null; m/true" || exit 1
umount m || exit 1
busy=0
for i in $(seq 20); do
    cp -a "$HEADSTART_STATE" state-$i && attach || exit 1
    "$H" --state $PWD/state-$i run --control-every 0 --name u -- m/true || exit 1
    umount m || { busy=$((busy + 1)); umount -l m; }
done
n=0; until [ -z "$(losetup -j i)" ] || [ $n -gt 300 ]; do sleep 0.1; n=$((n + 1)); done
stopped=0
for i in $(seq 20); do
    n=0; until "$H" --state $PWD/state-$i status u --json >told && grep -q "mode.: .replay" told || [ $n -gt 100 ]; do sleep 0.1; n=$((n + 1)); done
    if grep -q "stopped.: [1-9]" told; then stopped=$((stopped + 1)); fi
done
echo "busy $busy, stopped $stopped"
"#;

#[test]
fn who_unmounts_right_after_a_command_that_ends_at_once_is_never_told_that_it_is_busy() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let begin = format!(
        "cd {} && mkdir -p s/d && cp /bin/true s && for i in $(seq 500); do head -c 524288 /dev/urandom >s/d/$i; done || exit 1\n",
        dir.path().display()
    );
    let script = begin + "export H; exec unshare --mount --propagation private sh -c '" + ENDS_AT_ONCE + "'";
    let ran = case.script(&script);
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let stopped = ran.out.trim().strip_prefix("busy 0, stopped ");
    let stopped: u32 = stopped
        .unwrap_or_else(|| panic!("{}{}", ran.out, ran.err))
        .parse()
        .unwrap();
    // Where reading ahead was done before the command had ended nothing was to be let go of.
    assert!(stopped >= 5, "{stopped} of 20 replays had something left");
}

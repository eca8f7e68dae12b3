//! What a recording costs grows with what is used, not with what the machine has.

use crate::common::{Case, can_record, is_root};

/// In a pid namespace of its own whatever headstart leaves behind is a child of the shell in the end, and
/// counts in its `times`.
const COUNTED: &str = r#"
mount -t proc proc /proc && mount -t tmpfs t "$D" || exit 1
counted() {
    "$H" record -o "$D/trace" -- perl -MPOSIX -e 1 >/dev/null || exit 1
    "$H" --state "$D/state" run --wait --control-every 0 --name k -- perl -MPOSIX -e 1 >/dev/null || exit 1
    "$H" --state "$D/state" run --wait --control-every 0 --name k -- perl -MPOSIX -e 1 >/dev/null || exit 1
    sleep 0.3
    echo "$1 mounts $(wc -l </proc/self/mountinfo)"
    echo "$1 cpu $(times | tail -1)"
    "$H" show "$D/trace" --json >"$D/json" || exit 1
    echo "$1 files $(grep -c '"inode"' "$D/json")"
}
counted none
mkdir "$D/s0" && mount --bind / "$D/s0" || exit 1
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir "$D/s$i" && mount --rbind "$D" "$D/s$i" || exit 1; done
echo "begun cpu $(times | tail -1)"
counted many
"#;

/// Seconds of the processor, of user and system together, in a line of `times` such as `0m0.120s 0m0.030s`.
fn seconds(times: &str) -> f64 {
    let one = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    };
    times.split_whitespace().map(one).sum()
}

#[test]
fn with_thousands_of_bind_mounts_a_start_costs_about_as_much_as_without() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = format!(
        "export D={} H; exec unshare --mount --propagation private --pid --fork sh -c '{COUNTED}'",
        dir.path().display()
    );
    let ran = case.script(&script.replace("'\"inode\"'", "inode"));
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let told = |what: &str| {
        let line = ran.out.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_else(|| panic!("{what}: {}{}", ran.out, ran.err))
            .trim()
            .to_owned()
    };
    assert!(told("many mounts").parse::<u32>().unwrap() > 8000, "{}", ran.out);
    assert!(told("many files").parse::<u32>().unwrap() >= told("none files").parse::<u32>().unwrap() / 2);
    let (none, begun, many) = (
        seconds(&told("none cpu")),
        seconds(&told("begun cpu")),
        seconds(&told("many cpu")),
    );
    // As it was before it took 400 times as much. What is left is to read the table, once for each process.
    let many = many - begun;
    assert!(
        many < 8.0 * none.max(0.1),
        "{many} s of the processor with, {none} s without"
    );
}

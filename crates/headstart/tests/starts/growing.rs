//! A file that grows from start to start is read ahead as it is by then, and one that was replaced is not.
//! Needs root, for a loop device and the recorder.

use crate::common::{Case, can_record, is_root};
use headstart_system::testing::{LoopFs, Spec, can_mount, resident, undisturbed};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

const PAGE: u64 = 4096;

/// Reads two pages at the beginning, two in a place that recurs, one that does not, and the last two.
const READER: &str = "set -e
pages=$(($(stat -c %s \"$1\") / 4096))
for at in 0 1 200 201 \"$2\" $((pages - 2)) $((pages - 1)); do
    dd if=\"$1\" bs=4096 skip=\"$at\" count=1 status=none >/dev/null
done";

fn append(log: &Path, pages: u64) {
    let mut file = File::options().append(true).open(log).unwrap();
    file.write_all(&vec![b'x'; (pages * PAGE) as usize]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_log_that_grows_is_read_ahead_where_it_is_read() {
    undisturbed(|| {
        if !is_root() || !can_mount() || !can_record() {
            return;
        }
        let case = Case::new();
        let fill = |root: &Path| fs::write(root.join("log"), vec![b'x'; (1000 * PAGE) as usize]);
        let mut disk = LoopFs::create(&Spec::new("ext4"), fill).unwrap();
        let root = disk.mount_point();
        let log = root.join("log");
        let name = log.to_str().unwrap();
        for start in 0..5 {
            disk.remount_cold().unwrap();
            let once = format!("{}", 300 + 40 * start);
            let ran = case.run("log", &["sh", "-c", READER, "sh", name, &once]);
            assert_eq!((ran.code(), ran.err.as_str()), (0, ""));
            append(&log, 30);
        }
        // Much later, and not by any start that is known.
        append(&log, 700);
        disk.remount_cold().unwrap();
        let ran = case.headstart(&["replay", "log", "--wait"]);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        let end = 1000 + 5 * 30 + 700;
        assert_eq!(resident(&log).unwrap(), [(0, 2), (200, 202), (end - 2, end)]);
        let told = case.json(&["explain", name, "--name", "log", "--json"]);
        assert_eq!(
            (&told[0]["prefetched"], &told[0]["written"]),
            (&true.into(), &true.into())
        );

        // Another file of the same name and size is not the one that was learned.
        fs::copy(&log, root.join("new")).unwrap();
        fs::rename(root.join("new"), &log).unwrap();
        disk.remount_cold().unwrap();
        assert_eq!(case.headstart(&["replay", "log", "--wait"]).code(), 0);
        assert_eq!(resident(&log).unwrap(), []);
        let told = case.json(&["explain", name, "--name", "log", "--json"]);
        assert_eq!(
            (&told[0]["prefetched"], &told[0]["written"]),
            (&false.into(), &false.into())
        );
    });
}

//! A machine with much of everything: what a start costs grows with what it uses, not with what the machine
//! has.
//!
//! Judged by counts: bytes that headstart reads, of /proc too, and calls it makes for that (proc_pid_io(5)),
//! where the worker and the command are children of the shell that counts.

use crate::common::{Case, Ran, can_record, finish, is_root};
use headstart_system::testing::ControlGroup;
use std::path::Path;
use std::process::Command;

/// Recorded, replayed, warm; with what they read since in bytes and in calls. In a pid namespace of its own
/// whatever headstart leaves behind is a child of the shell in the end, and what it read counts as the
/// shell's once it has been waited for.
const STARTS: &str = r#"
mount -t proc proc /proc || exit 1
said() { while read -r what count; do case "$what" in rchar:|syscr:) echo "$1 $what $count";; esac; done </proc/$$/io; }
said begun
"$H" record -o "$D/trace" -- sh -c "$PROGRAM" >/dev/null || exit 1
for i in 1 2; do
    "$H" --state "$D/state-$1" run --wait --control-every 0 --name k -- sh -c "$PROGRAM" || exit 1
done
env -u HEADSTART_EVEN_WARM "$H" --state "$D/state-$1" run --wait --name k -- sh -c "$PROGRAM" || exit 1
# Nobody is left but this shell: what was never waited for would not count. Looked at by the shell itself, for what its children read counts.
n=0; while set -- "$1" /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 60 ]; do sleep 0.5; n=$((n + 1)); done
[ $# -eq 2 ] || { echo "still there: $*" >&2; exit 1; }
said ended
"#;

/// What starts have read.
#[derive(Debug)]
struct Read {
    bytes: u64,
    calls: u64,
}

/// A script in namespaces of its own, which knows the program as `H` and a directory as `D`.
fn apart(case: &Case, directory: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--pid", "--fork"])
        .args(["sh", "-c", script])
        .env("H", crate::common::binary())
        .env("D", directory)
        .env("HEADSTART_EVEN_WARM", "1")
        .current_dir(case.path("."));
    command
}

fn starts(case: &Case, directory: &Path, tag: &str, program: &str) -> Read {
    let mut command = apart(case, directory, STARTS);
    command.args(["sh", tag]).env("PROGRAM", program);
    let ran = finish(command, b"");
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let count = |what: &str| count(&ran, &format!("ended {what}")) - count(&ran, &format!("begun {what}"));
    Read {
        bytes: count("rchar:"),
        calls: count("syscr:"),
    }
}

fn count(ran: &Ran, what: &str) -> u64 {
    let line = ran.out.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap_or_else(|| panic!("{what}: {}{}", ran.out, ran.err))
        .trim()
        .parse()
        .unwrap()
}

/// What starts read with much of something is at most twice what they read without.
fn is_as_without(with: &Read, without: &Read) {
    assert!(
        with.bytes <= 2 * without.bytes && with.calls <= 2 * without.calls,
        "{with:?} with, {without:?} without"
    );
}

/// What starts read may depend on what others have in memory: the best of several.
fn best(case: &Case, directory: &Path, tag: &str, program: &str) -> Read {
    let reads: Vec<Read> = (0..2)
        .map(|turn| starts(case, directory, &format!("{tag}{turn}"), program))
        .collect();
    Read {
        bytes: reads.iter().map(|read| read.bytes).min().unwrap(),
        calls: reads.iter().map(|read| read.calls).min().unwrap(),
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Loop devices that are removed whatever happens.
struct Loops(Vec<String>);

impl Loops {
    fn attach(directory: &Path, count: usize) -> Loops {
        let mut loops = Loops(Vec::new());
        for nth in 0..count {
            let file = directory.join(format!("loop-{nth}"));
            std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
            let ran = Command::new("losetup")
                .args(["--find", "--show"])
                .arg(&file)
                .output()
                .unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            loops
                .0
                .push(String::from_utf8(ran.stdout).unwrap().trim().to_owned());
        }
        loops
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        // The first eight are always there. One that somebody else uses by now stays.
        let script = "import fcntl, sys\nc = open('/dev/loop-control')\nfor n in map(int, sys.argv[1:]):\n    try: fcntl.ioctl(c, 0x4C81, n)\n    except OSError: pass";
        let numbers = self
            .0
            .iter()
            .filter_map(|device| device.strip_prefix("/dev/loop")?.parse::<u32>().ok());
        let numbers = numbers
            .filter(|number| *number >= 8)
            .map(|number| number.to_string());
        let _ = Command::new("python3")
            .args(["-c", script])
            .args(numbers)
            .status();
    }
}

#[test]
fn with_hundreds_of_loop_devices_a_start_reads_as_much_as_without() {
    if !is_root() || !can_record() {
        return;
    }
    let (case, dir) = (Case::new(), directory());
    let program = "perl -MPOSIX -e 1";
    let without = best(&case, dir.path(), "without", program);
    let loops = Loops::attach(dir.path(), 300);
    is_as_without(&best(&case, dir.path(), "with", program), &without);
    drop(loops);
}

#[test]
fn with_five_thousand_control_groups_a_start_reads_as_much_as_without() {
    if !is_root() || !can_record() {
        return;
    }
    let (case, dir) = (Case::new(), directory());
    let program = "perl -MPOSIX -e 1";
    let without = best(&case, dir.path(), "without", program);
    let parent = ControlGroup::new("headstart-crowded").unwrap();
    let name = parent.path().file_name().unwrap().to_str().unwrap().to_owned();
    let groups: Vec<ControlGroup> = (0..5000)
        .map(|nth| ControlGroup::new(&format!("{name}/{nth}")).unwrap())
        .collect();
    is_as_without(&best(&case, dir.path(), "with", program), &without);
    drop(groups);
    drop(parent);
}

#[test]
fn of_a_hundred_thousand_files_in_a_directory_those_are_looked_at_that_are_used() {
    if !is_root() || !can_record() {
        return;
    }
    // Of so many each lies in a block of its own of the large directory, which is used, too; all of its
    // blocks are some hundred.
    const USED: usize = 50;
    let (case, dir) = (Case::new(), directory());
    let program = |of: usize| {
        let sub = dir.path().join(of.to_string());
        std::fs::create_dir(&sub).unwrap();
        (0..of).for_each(|nth| std::fs::write(sub.join(nth.to_string()), "x").unwrap());
        let used: Vec<String> = (0..USED)
            .map(|nth| format!("{}/{}", sub.display(), nth * (of / USED)))
            .collect();
        format!("cat {} >/dev/null", used.join(" "))
    };
    let (few, many) = (program(USED), program(100_000));
    let without = best(&case, dir.path(), "without", &few);
    is_as_without(&best(&case, dir.path(), "with", &many), &without);
}

#[test]
fn five_hundred_processes_that_live_at_the_end_cost_as_much_as_they_do_without() {
    if !is_root() || !can_record() {
        return;
    }
    let (case, dir) = (Case::new(), directory());
    // They live when the command ends, and for some time more.
    let program =
        |of: usize| format!("i=0; while [ $i -lt {of} ]; do sleep 1 & i=$((i + 1)); done; sleep 0.5");
    let one = best(&case, dir.path(), "one", &program(1));
    let many = best(&case, dir.path(), "many", &program(500));
    // Each of those processes reads itself: the C library, 3 KiB in 4 calls. What is known of each costs some
    // lines of /proc.
    let (bytes, calls) = ((many.bytes - one.bytes) / 2000, (many.calls - one.calls) / 2000);
    assert!(
        bytes <= 8 << 10 && calls <= 16,
        "{bytes} bytes and {calls} calls for each process; {many:?}, {one:?}"
    );
}

/// A daemon in namespaces of its own, with few mounts or thousands: what it reads while a program that it
/// knows is started cold, and while things are mounted.
const DAEMON: &str = r#"
mount -t proc proc /proc && mount -t tmpfs -o mode=755 t "$D" && mkdir "$D/fs" "$D/at" && truncate -s 64M "$D/i" && mkfs.ext4 -qF "$D/i" && mount -o loop "$D/i" "$D/fs" || exit 1
cp /bin/cat "$D/fs/cat" && head -c 16M /dev/urandom >"$D/fs/file" || exit 1
if [ "$MANY" = 1 ]; then
    mkdir "$D/s0" && mount --bind / "$D/s0" || exit 1
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir "$D/s$i" && mount --rbind "$D" "$D/s$i" || exit 1; done
fi
export HEADSTART_STATE="$D/state"
"$H" daemon --least-wait 1 --no-control --control-every 0 2>"$D/said" &
daemon=$!
said() { while read -r what count; do case "$what" in rchar:) echo "$1 $count";; esac; done </proc/$daemon/io; }
start() { sync "$D/fs/file"; for file in cat file; do dd of="$D/fs/$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done; "$D/fs/cat" "$D/fs/file" >/dev/null; sleep 1; }
n=0; until "$H" status | grep -q fs/cat || [ $n -gt 60 ]; do start; n=$((n + 1)); done
# Measuring the device reads all of it, and again if somebody else has read it meanwhile.
n=0; until grep -q '"measured_unix_ns": *[1-9]' "$D"/state/devices/*.json || [ $n -gt 60 ]; do start; n=$((n + 1)); done
start
said begun
for i in 1 2 3 4 5; do start; done
said started
echo "table $(wc -c </proc/self/mountinfo)"
for i in $(seq 100); do mount --bind / "$D/at" && umount -l "$D/at"; done
sleep 1
said mounted
"$H" status | grep -q fs/cat && echo "known 1"
kill "$daemon"; wait "$daemon"; echo "status $?"
cat "$D/said" >&2
"#;

#[test]
fn with_thousands_of_mounts_a_daemon_reads_as_much_for_a_start_as_without_and_little_when_more_are_mounted() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let [without, with] = ["0", "1"].map(|many| {
        let dir = directory();
        let mut command = apart(&case, dir.path(), DAEMON);
        command.env("MANY", many);
        let ran = finish(command, b"");
        assert_eq!(
            (count(&ran, "known"), count(&ran, "status")),
            (1, 0),
            "{}{}",
            ran.out,
            ran.err
        );
        ran
    });
    let table = count(&with, "table");
    assert!(table > 500_000, "{}", with.out);
    let for_starts = |ran: &Ran| count(ran, "started") - count(ran, "begun");
    assert!(
        for_starts(&with) <= 2 * for_starts(&without) + table,
        "{}{}",
        with.out,
        without.out
    );
    // Two hundred changes, and two hundred programs that are executed meanwhile.
    let meanwhile = count(&with, "mounted") - count(&with, "started");
    assert!(meanwhile <= 100 * table, "{}", with.out);
}

//! Each call that looks a path up is told, also where it fails for what the path stands for.

use crate::support::*;
use headstart_model::trace::LookupKind::{self, Stat};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

/// What a call is made on.
#[derive(Clone, Copy)]
enum On {
    File,
    Dir,
    Link,
    Fifo,
    Nothing,
}

/// The error of success.
const NO_ERROR: i32 = 0;

/// A call, what it is made on, its error, and what is told of it: whether it was found; `None`: nothing.
type Row = (&'static str, On, i32, Option<bool>);

/// The path of each row has its name.
const ROWS: &[Row] = &[
    ("readlink", On::File, libc::EINVAL, Some(true)),
    ("readlinkat", On::Dir, libc::EINVAL, Some(true)),
    ("access", On::File, libc::EACCES, Some(true)),
    ("faccessat", On::File, libc::EACCES, Some(true)),
    ("faccessat2", On::File, libc::EACCES, Some(true)),
    ("execve", On::File, libc::EACCES, Some(true)),
    ("open-exclusive", On::File, libc::EEXIST, Some(true)),
    ("open-to-write", On::Dir, libc::EISDIR, Some(true)),
    ("open-no-link", On::Link, libc::ELOOP, Some(true)),
    ("open-pipe", On::Fifo, libc::ENXIO, Some(true)),
    ("mkdir", On::Dir, libc::EEXIST, Some(true)),
    ("mkdirat", On::Dir, libc::EEXIST, Some(true)),
    ("mkdir-below", On::File, libc::ENOTDIR, None),
    ("mkdir-new", On::Nothing, NO_ERROR, None),
    ("mknod", On::File, libc::EEXIST, Some(true)),
    ("rmdir", On::Nothing, libc::ENOENT, Some(false)),
    ("unlink", On::Nothing, libc::ENOENT, Some(false)),
    ("unlinkat", On::Nothing, libc::ENOENT, Some(false)),
    ("unlink-there", On::File, NO_ERROR, None),
    ("getxattr", On::File, libc::ENODATA, Some(true)),
    ("lgetxattr", On::Link, libc::ENODATA, Some(true)),
    ("getxattr-there", On::File, NO_ERROR, Some(true)),
    ("getxattr-long", On::File, libc::ERANGE, Some(true)),
    ("getxattr-none", On::Nothing, libc::ENOENT, Some(false)),
    ("listxattr", On::File, NO_ERROR, Some(true)),
    ("llistxattr", On::Link, NO_ERROR, Some(true)),
    ("inotify_add_watch", On::Dir, NO_ERROR, Some(true)),
    ("inotify_add_watch-none", On::Nothing, libc::ENOENT, Some(false)),
    ("statfs", On::Dir, NO_ERROR, Some(true)),
    ("name_to_handle_at", On::File, libc::EOVERFLOW, Some(true)),
    ("chmod", On::File, NO_ERROR, Some(true)),
    ("fchmodat", On::File, NO_ERROR, Some(true)),
    ("lchown", On::Link, NO_ERROR, Some(true)),
    ("fchownat", On::File, NO_ERROR, Some(true)),
    ("utimensat", On::File, NO_ERROR, Some(true)),
    ("truncate", On::File, NO_ERROR, Some(true)),
];

const ATTRIBUTE: &std::ffi::CStr = c"user.long";

/// Makes the call of a row on `dir`/`row`; its error.
fn call(row: &str, dir: &Path) -> i32 {
    let path = dir.join(row);
    let below = CString::new(path.join("below").to_str().unwrap()).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let name = CString::new(row).unwrap();
    let at = fs::File::open(dir).unwrap();
    let (at, path, name) = (at.as_raw_fd(), path.as_ptr(), name.as_ptr());
    let mut room = [0u8; 4096];
    let (bytes, length) = (room.as_mut_ptr(), room.len());
    let (attribute, no_times) = (ATTRIBUTE.as_ptr(), std::ptr::null());
    // SAFETY: the texts end with NUL and live on; `bytes` has room for `length`, more than a struct statfs or
    // file_handle has. No time, argument or variable is given where a null pointer is.
    let result = unsafe {
        match row {
            "readlink" => libc::readlink(path, bytes.cast(), length) as i64,
            "readlinkat" => libc::readlinkat(at, name, bytes.cast(), length) as i64,
            "access" => libc::access(path, libc::X_OK).into(),
            "faccessat" => libc::syscall(libc::SYS_faccessat, at, name, libc::X_OK),
            "faccessat2" => libc::syscall(libc::SYS_faccessat2, at, name, libc::X_OK, 0),
            "execve" => libc::execve(path, std::ptr::null(), std::ptr::null()).into(),
            "open-exclusive" => libc::open(path, libc::O_CREAT | libc::O_EXCL, 0o600).into(),
            "open-to-write" => libc::open(path, libc::O_WRONLY).into(),
            "open-no-link" => libc::openat(at, name, libc::O_NOFOLLOW).into(),
            "open-pipe" => libc::open(path, libc::O_WRONLY | libc::O_NONBLOCK).into(),
            "mkdir" | "mkdir-new" => libc::mkdir(path, 0o700).into(),
            "mkdirat" => libc::mkdirat(at, name, 0o700).into(),
            "mkdir-below" => libc::mkdir(below.as_ptr(), 0o700).into(),
            "mknod" => libc::mkfifo(path, 0o600).into(),
            "rmdir" => libc::rmdir(path).into(),
            "unlink" | "unlink-there" => libc::unlink(path).into(),
            "unlinkat" => libc::unlinkat(at, name, 0).into(),
            "getxattr-there" | "getxattr-none" => {
                libc::getxattr(path, attribute, bytes.cast(), length) as i64
            }
            "getxattr-long" => libc::getxattr(path, attribute, bytes.cast(), 1) as i64,
            "getxattr" => libc::getxattr(path, c"user.none".as_ptr(), bytes.cast(), length) as i64,
            "lgetxattr" => libc::lgetxattr(path, c"trusted.none".as_ptr(), bytes.cast(), length) as i64,
            "listxattr" => libc::listxattr(path, bytes.cast(), length) as i64,
            "llistxattr" => libc::llistxattr(path, bytes.cast(), length) as i64,
            "inotify_add_watch" | "inotify_add_watch-none" => {
                libc::inotify_add_watch(libc::inotify_init1(0), path, libc::IN_CREATE).into()
            }
            "statfs" => libc::statfs(path, bytes.cast()).into(),
            "name_to_handle_at" => {
                let mount = bytes.add(length / 2);
                libc::syscall(libc::SYS_name_to_handle_at, at, name, bytes, mount, 0)
            }
            "chmod" => libc::chmod(path, 0o640).into(),
            "fchmodat" => libc::fchmodat(at, name, 0o640, 0).into(),
            "lchown" => libc::lchown(path, 1, 1).into(),
            "fchownat" => libc::fchownat(at, name, 1, 1, 0).into(),
            "utimensat" => libc::utimensat(at, name, no_times, 0).into(),
            "truncate" => libc::truncate(path, 0).into(),
            _ => panic!("no such row: {row}"),
        }
    };
    match result {
        0.. => NO_ERROR,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

/// Not a test of its own: makes all calls in a directory, and writes down what came of them.
#[test]
#[ignore = "not a test of its own, but what one executes"]
fn caller() {
    let dir = std::env::var("CALLS_IN").unwrap();
    let made: String = ROWS
        .iter()
        .map(|(row, ..)| format!("{row} {}\n", call(row, Path::new(&dir))))
        .collect();
    fs::write(std::env::var("CALLS_MADE").unwrap(), made).unwrap();
}

fn prepare(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (row, on, ..) in ROWS {
        let path = dir.join(row);
        match on {
            On::File => fs::write(&path, "x").unwrap(),
            On::Dir => fs::create_dir(&path).unwrap(),
            On::Link => std::os::unix::fs::symlink("elsewhere", &path).unwrap(),
            On::Fifo => drop(run("mkfifo", &[path.to_str().unwrap()])),
            On::Nothing => (),
        }
        if row.starts_with("getxattr-") && matches!(on, On::File) {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, ATTRIBUTE, b"value", flags).unwrap();
        }
    }
}

#[test]
fn calls_of_every_kind_tell_which_paths_they_look_up() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("xfs");
    let (dir, made) = (disk.join("calls"), disk.join("made"));
    prepare(&dir);
    let trace = record(&format!(
        "CALLS_IN={} CALLS_MADE={} \"$HELPER\" calls::caller --exact --ignored --test-threads 1",
        dir.display(),
        made.display()
    ));
    let made = fs::read_to_string(made).unwrap();
    let wanted: String = ROWS
        .iter()
        .map(|(row, _, error, _)| format!("{row} {error}\n"))
        .collect();
    assert_eq!(made, wanted, "the errors of the calls");
    for (row, _, _, told) in ROWS {
        let path = dir.join(row);
        let seen: Vec<(LookupKind, bool)> = trace
            .lookups
            .iter()
            .filter(|l| l.path.as_path() == path)
            .map(|l| (l.kind, l.found))
            .collect();
        let wanted: Vec<_> = told.iter().map(|found| (Stat, *found)).collect();
        assert_eq!(seen, wanted, "{row}");
    }
    // A name that is not there, because what stands before it is no directory.
    let below = dir.join("mkdir-below/below");
    assert!(looked_up(&trace, &below, Stat, false));
}

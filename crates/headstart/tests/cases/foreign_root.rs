//! A package that is installed into another root, by an emulator or below a filter of system calls that knows
//! no openat2(2).

use crate::common::{Case, binary};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the command behind it with a filter by which openat2(2) fails with the error of its first word, as
/// below qemu-user 7.2 (ENOSYS) or an old container manager (EPERM).
const WITHOUT_OPENAT2: &str = r#"
import ctypes, errno, os, platform, struct, sys
number, arch = 437, {"x86_64": 0xc000003e, "aarch64": 0xc00000b7}[platform.machine()]
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
program = b"".join([
    op(0x20, 0, 0, 4), op(0x15, 0, 3, arch),
    op(0x20, 0, 0, 0), op(0x15, 0, 1, number),
    op(0x06, 0, 0, 0x00050000 | getattr(errno, sys.argv[1])), op(0x06, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filter = Program(len(program) // 8, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, ctypes.get_errno()
assert libc.syscall(number, -100, b"/", None, 0) == -1 and ctypes.get_errno() == getattr(errno, sys.argv[1])
os.execvp(sys.argv[2], sys.argv[2:])
"#;

fn without_openat2(error: &str, words: &[&str], state: Option<&Path>) -> Output {
    let mut command = Command::new("python3");
    command
        .args(["-c", WITHOUT_OPENAT2, error])
        .arg(binary())
        .args(words);
    command.env_remove("HEADSTART_SYNC");
    if let Some(state) = state {
        command.env("HEADSTART_STATE", state);
    }
    command.output().unwrap()
}

/// A root that can be enabled, some of whose directories are links, as in an image that is merged or
/// ostree's.
fn image(case: &Case, name: &str) -> PathBuf {
    let root = case.path(name);
    for directory in [
        "usr/lib/systemd",
        "opt/bin",
        "opt/sbin",
        "etc/initramfs-tools",
        "var",
    ] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::os::unix::fs::symlink("/opt/bin", root.join("usr/bin")).unwrap();
    std::os::unix::fs::symlink("/opt/sbin", root.join("usr/sbin")).unwrap();
    std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
    fs::write(root.join("usr/lib/systemd/systemd"), "").unwrap();
    fs::write(root.join("opt/bin/headstart"), "").unwrap();
    root
}

/// Every path below a root, and what it says or leads to.
fn all(root: &Path, below: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let says = if kind.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if kind.is_file() {
            fs::read(&path).unwrap()
        } else {
            all(root, &path, found);
            Vec::new()
        };
        found.push((path.strip_prefix(root).unwrap().to_owned(), says));
    }
    found.sort();
}

fn everything(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    all(root, root, &mut files);
    files
}

#[test]
fn case_20_boots_are_enabled_without_openat2_by_the_same_links() {
    let case = Case::new();
    let expected = image(&case, "expected");
    let at = expected.to_str().unwrap();
    assert_eq!(case.headstart(&["boot", "enable", "--root", at]).code(), 0);
    let expected = everything(&expected);
    assert!(
        expected
            .iter()
            .any(|(path, _)| path.ends_with("sysinit.target.wants/headstart-boot.service"))
    );
    for error in ["ENOSYS", "EPERM"] {
        let root = image(&case, error);
        let words = ["boot", "enable", "--root", root.to_str().unwrap()];
        let ran = without_openat2(error, &words, None);
        assert!(ran.status.success(), "{error}: {ran:?}");
        assert_eq!(everything(&root), expected, "{error}");
        let words = ["boot", "disable", "--root", root.to_str().unwrap()];
        assert!(without_openat2(error, &words, None).status.success(), "{error}");
    }
}

#[test]
fn case_20_without_openat2_no_link_of_an_image_leads_out_of_it() {
    let case = Case::new();
    let root = case.path("root");
    let outside = case.path("outside");
    fs::create_dir_all(root.join("usr/lib/systemd")).unwrap();
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::create_dir_all(root.join("usr/sbin")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(root.join("usr/lib/systemd/systemd"), "").unwrap();
    fs::write(root.join("usr/bin/headstart"), "").unwrap();
    for link in ["etc", "var"] {
        std::os::unix::fs::symlink(&outside, root.join(link)).unwrap();
    }
    std::os::unix::fs::symlink("../../../../../../../../..", root.join("up")).unwrap();
    let ran = without_openat2(
        "ENOSYS",
        &["boot", "enable", "--root", root.to_str().unwrap()],
        None,
    );
    assert!(!ran.status.success(), "its /etc leads nowhere in it: {ran:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn case_20_the_command_has_its_status_without_openat2_and_is_learned_all_the_same() {
    let case = Case::new();
    let data = case.write("data", vec![7; 1 << 20]);
    let script = format!("cat {} >/dev/null; exit 7", data.display());
    for _ in 0..3 {
        for error in ["ENOSYS", "EPERM"] {
            let words = ["run", "--wait", "--name", error, "--", "sh", "-c", &script];
            let ran = without_openat2(error, &words, Some(&case.state()));
            assert_eq!(ran.status.code(), Some(7), "{ran:?}");
        }
    }
    let ran = without_openat2("ENOSYS", &["status"], Some(&case.state()));
    assert!(ran.status.success(), "{ran:?}");
}

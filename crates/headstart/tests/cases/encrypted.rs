//! Names of encrypted directories are kept inside of them, or not at all.

use crate::common::{Ran, can_record, finish};
use headstart_model::profile::Policy;
use headstart_model::{Key, Profile};
use headstart_store::Store;
use headstart_system::testing::{LoopFs, Spec, can_mount, run, unmount, whole};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A key for the file system, and a policy for a directory: linux/fscrypt.h.
const SET_UP: &str = r#"
import ctypes, fcntl, os, struct, sys
root, directory = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
key = bytes(range(64))
# struct fscrypt_add_key_arg: specifier {type, reserved, identifier[32]}, raw_size, key_id, reserved[8], raw[].
add = bytearray(struct.pack("II32sII32s", 2, 0, b"", len(key), 0, b"") + key)
fcntl.ioctl(root, 0xC0506617, add, True)
identifier = bytes(add[8:24])
# struct fscrypt_policy_v2: version, contents (AES-256-XTS), names (AES-256-CTS), flags, reserved[4], identifier.
fcntl.ioctl(directory, 0x800C6613, struct.pack("BBBB4s16s", 2, 1, 4, 2, b"", identifier))
print(identifier.hex())
"#;

/// Takes the key away: names are there in another form then.
const LOCK: &str = r#"
import fcntl, os, struct, sys
root = os.open(sys.argv[1], os.O_RDONLY)
arg = bytearray(struct.pack("II32sI20s", 2, 0, bytes.fromhex(sys.argv[2]), 0, b""))
fcntl.ioctl(root, 0xC0406618, arg, True)
sys.exit(struct.unpack_from("I", arg, 40)[0])
"#;

fn python(code: &str, words: &[&str]) -> String {
    let ran = Command::new("python3")
        .args(["-c", code])
        .args(words)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

struct Encrypted {
    fs: LoopFs,
    key: String,
}

impl Encrypted {
    fn new() -> Encrypted {
        let spec = Spec {
            size: 64 << 20,
            ..Spec::new("ext4").mkfs(&["-O", "encrypt"])
        };
        let fs = LoopFs::create(&spec, |at| {
            fs::create_dir(at.join("anna"))?;
            fs::create_dir(at.join("open"))?;
            fs::write(at.join("open/pamphlet"), "x")
        });
        let fs = fs.unwrap();
        let at = fs.mount_point();
        let [root, home] = [at.clone(), at.join("anna")].map(|path| path.to_str().unwrap().to_owned());
        let key = python(SET_UP, &[&root, &home]);
        let diary = at.join("anna/diary");
        fs::create_dir(&diary).unwrap();
        for number in 0..50 {
            fs::write(diary.join(format!("letter-{number}")), "dear").unwrap();
        }
        fs::write(diary.join("confession.sh"), "#!/bin/sh\necho told\n").unwrap();
        fs::set_permissions(diary.join("confession.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        rustix::fs::sync();
        Encrypted { fs, key }
    }

    fn home(&self) -> PathBuf {
        self.fs.mount_point().join("anna")
    }

    fn lock(&self) {
        python(LOCK, &[self.fs.mount_point().to_str().unwrap(), &self.key]);
        assert!(!self.home().join("diary").exists(), "it is not locked");
    }
}

fn start(state: &Path, at: &Path, words: &[&str]) -> Ran {
    let mut command = Command::new(crate::common::binary());
    command
        .arg("--state")
        .arg(state)
        .args(["run", "--wait", "--control-every", "0"])
        .args(words);
    finish(
        {
            command.current_dir(at);
            command
        },
        b"",
    )
}

/// All that is kept, with names of files and directories, as `headstart show` unpacks it.
fn kept(state: &Path) -> String {
    let mut text = String::new();
    let mut left = vec![state.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            text.push_str(&format!("{}\n", path.display()));
            if path.is_dir() {
                left.push(path);
                continue;
            }
            text.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
            let shown = Command::new(crate::common::binary())
                .arg("show")
                .arg(&path)
                .arg("--json")
                .output();
            text.push_str(&String::from_utf8_lossy(&shown.unwrap().stdout));
        }
    }
    text
}

#[track_caller]
fn tells_nothing(state: &Path, what: &str) {
    let kept = kept(state);
    for secret in ["letter", "confession", "diary", "burnt"] {
        let at = kept.find(secret).map(|at| {
            kept[at.saturating_sub(100)..]
                .chars()
                .take(200)
                .collect::<String>()
        });
        assert_eq!(at, None, "{what}: {secret}");
    }
}

#[test]
fn nothing_of_an_encrypted_directory_is_kept_outside_and_it_can_be_locked_at_once() {
    if !can_mount() {
        return;
    }
    let encrypted = Encrypted::new();
    let (home, state) = (encrypted.home(), tempfile::tempdir_in("/var/tmp").unwrap());
    let (state, at) = (state.path(), encrypted.fs.mount_point());
    let link = at.join("link");
    std::os::unix::fs::symlink(home.join("diary"), &link).unwrap();
    let code = format!(
        "cat {0}/diary/letter-* {1}/open/pamphlet; test -e {0}/diary/burnt; test -e {2}/burnt; true",
        home.display(),
        at.display(),
        link.display()
    );
    let ran = start(state, &at, &["--name", "e", "--", "sh", "-c", &code]);
    assert_eq!(
        (ran.code(), ran.out.matches("dear").count()),
        (0, 50),
        "{}",
        ran.err
    );
    assert!(
        kept(state).contains("pamphlet"),
        "what is not encrypted is learned"
    );
    tells_nothing(state, "with a name");
    // By relative paths, from within, and a program in it.
    for (at, name) in [(&at, Some("r")), (&home, Some("w")), (&home, None)] {
        let code = if at == &home {
            "cat diary/letter-1"
        } else {
            "cat anna/diary/letter-1"
        };
        let words = ["--", "sh", "-c", code];
        let named = name.map(|name| [["--name", name].as_slice(), &words].concat());
        assert_eq!(start(state, at, named.as_deref().unwrap_or(&words)).code(), 0);
    }
    let script = home.join("diary/confession.sh");
    let ran = start(state, &at, &["--", script.to_str().unwrap()]);
    assert_eq!(
        (ran.code(), ran.out.as_str(), ran.err.as_str()),
        (0, "told\n", ""),
        "it is bypassed without a word"
    );
    let ran = start(state, &at, &["--", "sh", script.to_str().unwrap()]);
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""));
    let ran = start(state, &home, &["--", "sh", "diary/confession.sh"]);
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""));
    tells_nothing(state, "as programs");
    encrypted.lock();
    let ran = start(state, &at, &["--name", "e", "--", "sh", "-c", "true"]);
    assert_eq!(
        (ran.code(), ran.err.as_str()),
        (0, ""),
        "a plan of a locked directory does nothing"
    );
    tells_nothing(state, "locked");
}

#[test]
fn what_is_kept_in_the_encrypted_directory_itself_tells_its_names() {
    if !can_mount() {
        return;
    }
    let encrypted = Encrypted::new();
    let home = encrypted.home();
    let state = home.join("state");
    let code = format!("cat {}/diary/letter-*", home.display());
    assert_eq!(
        start(&state, &home, &["--name", "e", "--", "sh", "-c", &code]).code(),
        0
    );
    assert!(kept(&state).contains("letter-7"));
    // By another way than that of its own mount it is the same directory.
    let other = encrypted.fs.mount_point().join("open");
    run(Command::new("mount").arg("--bind").arg(&home).arg(&other)).unwrap();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let code = format!("cat {}/diary/letter-*", other.display());
    let ran = start(outside.path(), &other, &["--name", "e", "--", "sh", "-c", &code]);
    unmount(&other).unwrap();
    assert_eq!(ran.code(), 0);
    tells_nothing(outside.path(), "through a bind mount");
}

/// Keeps a profile that names these files, as builds did that knew of no secrets.
fn keep(state: &Path, key: &str, files: &[PathBuf]) {
    let (store, key) = (Store::new(state), Key::new(key).unwrap());
    let profile = Profile {
        entries: files.iter().map(|file| whole(file, 1).unwrap()).collect(),
        ..Profile::new(key.clone(), rustix::param::page_size() as u32, Policy::Decay)
    };
    store.key(&key).lock().unwrap().save_profile(&profile).unwrap();
}

#[test]
fn what_was_kept_of_an_encrypted_directory_before_goes_at_the_next_start_also_when_it_is_locked() {
    if !can_mount() || !can_record() {
        return;
    }
    for locked in [false, true] {
        let encrypted = Encrypted::new();
        let state = tempfile::tempdir_in("/var/tmp").unwrap();
        let (state, at) = (state.path(), encrypted.fs.mount_point());
        let script = encrypted.home().join("diary/confession.sh");
        keep(state, "cat", &[encrypted.home().join("diary/letter-1")]);
        keep(state, script.to_str().unwrap(), &[at.join("open/pamphlet")]);
        keep(state, "open", &[at.join("open/pamphlet")]);
        if locked {
            encrypted.lock();
        }
        assert!(kept(state).contains("letter"));
        assert_eq!(
            start(state, &at, &["--name", "e", "--", "cat", "open/pamphlet"]).code(),
            0
        );
        tells_nothing(state, "after a start");
        let keys = Store::new(state).keys().unwrap();
        assert!(
            keys.contains(&Key::new("open").unwrap()),
            "what is not encrypted stays: {keys:?}"
        );
    }
}

//! Which file is executed when a known program starts.

use super::{Inode, inode_of, is_leased_by_nobody_else};
use headstart_model::Key;
use headstart_record::Executable;
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Opened, open_checked};
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a machine executes all day: where their script can be asked about, they are not.
const SHELLS: [&str; 6] = ["ash", "bash", "busybox", "dash", "sh", "zsh"];

/// Whether the kernel opens it for each program that is executed: what loads dynamic programs (ld-linux-x86-64.so.2, ld-musl-x86_64.so.1, ld64.so.2).
fn loads_programs(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld") && name.contains(".so")
}

/// Who executes it becomes somebody else, and is not held.
const OTHERS_RIGHTS: u32 = 0o6000;

const EXECUTABLE: u32 = 0o111;

/// A file that is executed when a known program starts.
pub(in crate::daemon) struct ToAskAbout {
    pub(super) file: OwnedFd,
    pub(super) inode: Inode,
    /// Where it is.
    pub(super) path: PathBuf,
    /// The user for whose key it is; `None` for the system's.
    pub(super) user: Option<u32>,
    /// The program: what executes the file, if that is a script, else the file itself.
    pub(super) program: PathBuf,
    /// The file, where nothing else starts by it than this key.
    pub(in crate::daemon) known: Option<Executable>,
}

/// The file whose execution begins a start of this key, as far as the key tells: of a script that may be executed itself it is the script.
pub(super) fn of_key(key: &Key, mounts: &MountTable) -> Option<ToAskAbout> {
    let mut words = key.of_all().split(' ');
    let program = PathBuf::from(words.next()?);
    let is_all = words.clone().next().is_none();
    let script = words
        .find(|word| word.starts_with('/'))
        .and_then(|word| Some((PathBuf::from(word), open(mounts, Path::new(word))?)));
    let (path, opened) = match script {
        Some((path, script)) if script.stat.mode & EXECUTABLE != 0 && names_interpreter(&script) => {
            (path, script)
        }
        Some(_) if SHELLS.iter().any(|shell| program.ends_with(shell)) => return None,
        _ => (program.clone(), open(mounts, &program)?),
    };
    let mode = opened.stat.mode;
    let is_own = std::env::current_exe().is_ok_and(|own| own == program);
    let may_be_asked_about =
        mode & EXECUTABLE != 0 && mode & OTHERS_RIGHTS == 0 && is_leased_by_nobody_else(&opened.stat);
    (may_be_asked_about && !is_own && !loads_programs(&program)).then(|| ToAskAbout {
        inode: inode_of(&opened.stat),
        known: is_all.then(|| Executable::of(&opened)),
        file: opened.fd,
        path,
        user: key.user(),
        program,
    })
}

pub(super) fn open(mounts: &MountTable, path: &Path) -> Option<Opened> {
    let opened = open_checked(mounts, path, &Expect::default()).ok()?;
    (opened.stat.kind == Type::File).then_some(opened)
}

fn names_interpreter(script: &Opened) -> bool {
    let mut begin = [0; 2];
    rustix::io::pread(&script.fd, &mut begin, 0) == Ok(2) && begin == *b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_script_is_asked_about_itself_and_a_shell_for_no_script() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = dir.path().canonicalize().unwrap();
        let make = |name: &str, text: &str, mode: u32| {
            let path = root.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path.to_string_lossy().into_owned()
        };
        let program = make("python3", "x", 0o755);
        let dash = make("dash", "x", 0o755);
        let script = make("script", "#!/bin/python3\n", 0o755);
        let module = make("module.py", "import x\n", 0o644);
        let closed = make("closed", "#!/bin/python3\n", 0o644);
        let setuid = make("setuid", "x", 0o4755);
        let loader = make("ld-linux-x86-64.so.2", "x", 0o755);
        let mounts = MountTable::read().unwrap();
        let inode = |path: &str| {
            open(&mounts, Path::new(path))
                .map(|it| inode_of(&it.stat))
                .unwrap()
        };
        for (key, file) in [
            (program.clone(), Some(&program)),
            (format!("{program} of user 1000"), Some(&program)),
            (format!("{program} {script} of user 1000"), Some(&script)),
            (format!("{program} {module}"), Some(&program)),
            (format!("{program} {closed}"), Some(&program)),
            (format!("{dash} {script}"), Some(&script)),
            (format!("{dash} {module}"), None),
            // As in a chroot, where it is elsewhere.
            (format!("{dash} /nowhere/script"), Some(&dash)),
            (setuid, None),
            (loader.clone(), None),
            (format!("{loader} {module}"), None),
            (module.clone(), None),
            (root.to_string_lossy().into_owned(), None),
            ("postgresql.service".into(), None),
            ("operation load of user 0".into(), None),
        ] {
            let found = of_key(&Key::new(key.clone()).unwrap(), &mounts);
            let expected = file.map(|file| inode(file));
            assert_eq!(found.as_ref().map(|found| found.inode), expected, "{key}");
            if let Some(found) = found {
                let is_all = !key.trim_end_matches(" of user 1000").contains(' ');
                assert_eq!(found.known.is_some(), is_all, "{key}");
                assert!(key.starts_with(found.program.to_str().unwrap()));
            }
        }
    }
}

//! Whose start an exec is: the key, as a person means it.
//!
//! A system service is its unit, and the manager of a user's services is the session that begins with it.
//! Anything else is what `headstart run` would call it, by [`headstart_start::keys`], so that both share what
//! they know.

#[cfg(test)]
mod tests;
mod unit;

use headstart_model::{Key, Trace};
use headstart_start::keys::{self, StartKey};
use headstart_store::{Store, StoreError};
use headstart_system::mounts::MountTable;
use headstart_system::open::pin;
use headstart_system::secrets::Secrets;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub use headstart_start::keys::local::{are_one, mounts, resolve};
pub use unit::{SESSION, unit, user_of_manager};

/// So many arguments are looked at: an interpreter's options come first, and few have more.
pub const MOST_ARGUMENTS: usize = 64;

/// So many bytes of an argument are looked at: no path is longer (`PATH_MAX`, linux/limits.h).
pub const MOST_BYTES: usize = 4096;

/// The longest name of an operation, bytes.
const MOST_NAME: usize = 128;

/// What the kernel puts behind the name of a file or a directory that is gone (d_path, fs/d_path.c).
const DELETED: &[u8] = b" (deleted)";

/// A path as /proc tells it of a file or a directory, and whether that is gone. What no local file system has
/// at the whole path is.
pub fn told_by_proc(path: PathBuf) -> (PathBuf, bool) {
    let is_there = || pin(&mounts().unwrap_or_default(), &path).is_ok();
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(name) if !is_there() => (PathBuf::from(OsStr::from_bytes(name)), true),
        _ => (path, false),
    }
}

/// A program's exec, as it was seen. All of it is the word of whoever started it: any bytes, of any length.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    /// The file that was executed, by its real path: of a script, the interpreter's.
    pub executable: &'a Path,
    /// The arguments, the program's own name first. What comes behind the first [`MOST_ARGUMENTS`], or
    /// [`MOST_BYTES`] of one, may be missing.
    pub argv: &'a [Vec<u8>],
    /// The control group, by its path from the root of the hierarchy, such as `/system.slice/cron.service`,
    /// if this is the first exec in it. What a running service starts, as cron its jobs, is a program like
    /// any other: `None`.
    pub cgroup: Option<&'a str>,
    /// The directory it was started in, from which relative paths lead.
    pub cwd: Option<&'a Path>,
    /// Whose process it is.
    pub user: u32,
}

/// The key of an exec. `None` for what has none: a one-liner (`sh -c`); a program that only starts another,
/// which has a key of its own (`env`, `sudo`); a browser's processes of its own; what is not found again by
/// its path.
///
/// Looks up the script of an interpreter, on local file systems only: on others a path is taken by its name,
/// and nobody is asked who may not answer.
pub fn for_exec(exec: &Exec<'_>) -> Option<Key> {
    start_key(exec).map(|start| start.key)
}

/// The same, with the arguments that the key says nothing of.
pub fn start_key(exec: &Exec<'_>) -> Option<StartKey> {
    let names = keys::local::Local {
        cwd: exec.cwd,
        user: exec.user,
    };
    key_of_exec(exec, &names)
}

/// Whose start it was, if its program turned out to be a launcher ([`keys::turned_out`]).
pub fn turned_out(
    store: &Store,
    whose: &StartKey,
    user: u32,
    trace: &Trace,
) -> Result<Option<Key>, StoreError> {
    keys::turned_out(store, whose, &keys::local::Local { cwd: None, user }, trace)
}

fn key_of_exec(exec: &Exec<'_>, names: &dyn keys::Names) -> Option<StartKey> {
    if let Some(key) = exec.cgroup.and_then(unit) {
        return Some(StartKey {
            key,
            rest: Vec::new(),
        });
    }
    if !lasts(exec.executable, names) {
        return None;
    }
    let word = |argument: &Vec<u8>| OsString::from_vec(argument.iter().take(MOST_BYTES).copied().collect());
    let argv: Vec<OsString> = exec.argv.iter().take(MOST_ARGUMENTS).map(word).collect();
    let start = keys::of_exec(exec.executable, &argv, names)?;
    // What it names may be a secret; a path in it is looked up on local file systems only.
    let read = || MountTable::read().unwrap_or_default();
    let mut secrets = Secrets::new();
    let rest = start.rest.iter().map(|word| word.as_bytes());
    let mut texts = std::iter::once(start.key.as_str().as_bytes()).chain(rest);
    let is_secret = texts.any(|text| secrets.are_in(Some(&read), text, exec.cwd));
    (!is_secret).then_some(start)
}

/// Whether the file is found by its path the next time.
fn lasts(executable: &Path, names: &dyn keys::Names) -> bool {
    let bytes = executable.as_os_str().as_bytes();
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    executable.is_absolute()
        && bytes.len() <= MOST_BYTES
        // What the kernel puts behind the name of a file that is gone may be a part of one that is there.
        && (!bytes.ends_with(DELETED) || names.is_there(executable))
        && !bytes.starts_with(b"/memfd:")
        && !bytes.starts_with(b"/proc/")
        && !bytes.starts_with(b"/dev/")
        // Where an AppImage mounts itself: a name by chance. The image has been executed before.
        && !has(b"/.mount_")
}

/// The key of an operation: a span that a program of this user marks. Names of different users are different
/// operations.
pub fn of_operation(uid: u32, name: &str) -> Option<Key> {
    let fits = (1..=MOST_NAME).contains(&name.len()) && name.trim() == name;
    fits.then(|| Key::new(format!("operation {name}")).ok()?.of_user(uid).ok())?
}

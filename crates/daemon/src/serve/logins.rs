//! Logins: when the start of a user's manager is one, and which control groups are the session's.

use super::BOOT;
use crate::key::SESSION;
use headstart_model::Key;
use headstart_model::users::is_ordinary;
use headstart_system::files::is_locked;
use headstart_system::sessions::may_have_session;
use std::fs::{metadata, read_dir};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where control groups are: the only hierarchy, or that beside those of version 1.
pub(super) const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Whether a key is that of a user's sessions.
pub(super) fn is_session(key: &Key) -> bool {
    key.of_all() == SESSION
}

/// The number of the control group that has all of a session, which begins as this user's manager is
/// executed; `None` where that is no login, or where the boot's process serves it: a login by itself belongs
/// to the boot, and one at a login screen does not (`End::sessions` of crates/boot).
pub(super) fn group_of_login(uid: u32) -> Option<u64> {
    let users = CGROUPS.map(|root| Path::new(root).join("user.slice"));
    let is_boots = || is_locked(Path::new(BOOT)).unwrap_or(false) && !users.iter().any(|at| has_screen(at));
    if !may_have_session(uid) || is_boots() {
        return None;
    }
    let group = |users: &PathBuf| metadata(users.join(format!("user-{uid}.slice"))).ok();
    users.iter().find_map(group).map(|group| group.ino())
}

/// Whether a login screen is there or was lately, by the control groups of users: it has a user of its own,
/// whose group logind keeps for ten seconds.
fn has_screen(users: &Path) -> bool {
    let names = read_dir(users).into_iter().flatten().flatten();
    let mut uids = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok()
    });
    uids.any(|uid: u32| uid != 0 && !is_ordinary(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_screen_has_a_user_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("user-1000.slice", false),
            ("user-0.slice", false),
            ("user-x.slice", false),
            ("system.slice", false),
            ("user-110.slice", true),
        ] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            assert_eq!(has_screen(dir.path()), expected, "{name}");
        }
        assert!(!has_screen(Path::new("/nowhere")));
    }
}

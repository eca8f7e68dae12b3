//! logind's sessions and users, from the files that it keeps for sd-login(3) in /run/systemd.

use std::path::Path;

const SESSIONS: &str = "/run/systemd/sessions";
const USERS: &str = "/run/systemd/users";

/// Whether logind has a session of this user, or does not tell. Without one the user's manager runs because
/// it lingers (`loginctl enable-linger`), and nobody has logged in.
pub fn may_have_session(uid: u32) -> bool {
    let user = std::fs::read_to_string(Path::new(USERS).join(uid.to_string()));
    user.map_or(true, |text| has_session(&text, Path::new(SESSIONS)))
}

/// The same, by the text of a user's file. The manager has a session of its own, too (systemd 256).
fn has_session(user: &str, sessions: &Path) -> bool {
    let names = user.lines().find_map(|line| line.strip_prefix("SESSIONS="));
    let mut names = names.unwrap_or_default().split_ascii_whitespace();
    names.any(|name| {
        let session = std::fs::read_to_string(sessions.join(name));
        session.map_or(true, |text| !class_of(&text).is_some_and(is_managers))
    })
}

fn class_of(session: &str) -> Option<&str> {
    session.lines().find_map(|line| line.strip_prefix("CLASS="))
}

fn is_managers(class: &str) -> bool {
    class.starts_with("manager")
}

/// Since 256 there are variants of a user's first session.
fn is_users(class: &str) -> bool {
    class.starts_with("user")
}

/// When the first session of each kind began, nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// A login screen's.
    pub greeter_ns: Option<u64>,
    /// A user's.
    pub user_ns: Option<u64>,
}

/// Those of now; none where there is no logind.
pub fn sessions() -> Sessions {
    in_directory(Path::new(SESSIONS))
}

fn in_directory(path: &Path) -> Sessions {
    let mut sessions = Sessions::default();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        // Beside a session's file there may be a FIFO, SESSION.ref, which nobody must wait for.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if let Ok(text) = std::fs::read_to_string(entry.path()) {
            add(&text, &mut sessions);
        }
    }
    sessions
}

fn add(text: &str, found: &mut Sessions) {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let Some(began_ns) = field("MONOTONIC").and_then(|us| us.parse::<u64>().ok()) else {
        return;
    };
    let kind = match class_of(text) {
        Some("greeter") => &mut found.greeter_ns,
        Some(class) if is_users(class) => &mut found.user_ns,
        _ => return,
    };
    let began_ns = began_ns.saturating_mul(1000);
    *kind = Some(kind.map_or(began_ns, |before| before.min(began_ns)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whose_manager_lingers_has_no_session() {
        let dir = tempfile::tempdir().unwrap();
        for (name, class) in [("2", "user-early"), ("3", "manager"), ("4", "manager-early")] {
            std::fs::write(dir.path().join(name), format!("UID=1000\nCLASS={class}\n")).unwrap();
        }
        let has = |sessions: &str| has_session(&format!("NAME=alice\nSTATE=opening\n{sessions}"), dir.path());
        assert!(has("SESSIONS=2\n") && has("SESSIONS=3 2\n"));
        assert!(!has("SESSIONS=3 4\n") && !has("SESSIONS=\n") && !has("ONLINE_SESSIONS=2\n"));
        assert!(has("SESSIONS=5\n"), "its file is not there yet");
        assert!(may_have_session(u32::MAX), "logind tells nothing of nobody");
    }

    #[test]
    fn the_first_session_of_each_kind_counts() {
        let dir = tempfile::tempdir().unwrap();
        let session = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        session("1", "UID=1000\nCLASS=user\nREALTIME=9\nMONOTONIC=700\n");
        session("2", "CLASS=user\nMONOTONIC=500\n");
        session("c1", "CLASS=greeter\nMONOTONIC=300\n");
        session("3", "CLASS=background\nMONOTONIC=1\n");
        session("4", "CLASS=user\n");
        let expected = Sessions {
            greeter_ns: Some(300_000),
            user_ns: Some(500_000),
        };
        assert_eq!(in_directory(dir.path()), expected);
        assert_eq!(in_directory(Path::new("/nowhere")), Sessions::default());
    }
}

//! The stages of a boot, learned rather than configured: marks placed after the fact, from when systemd's
//! units became active and logind's sessions began, and from `headstart mark`.
//!
//! `start` is all from the first instant; then `local-fs` (all local file systems are there), `services` (the
//! basic system is up, services start), `login` (a login screen, or without one the prompt), `session` (a
//! user's), and `up` (systemd has started all that it was to start).

use crate::manager::Manager;
use headstart_model::limits;
use headstart_model::sort::Sort;
use headstart_model::trace::{Mark, stage};
use headstart_system::sessions::Sessions;
use std::io;

/// Stages and the units whose activation begins them, the first one that there is.
const UNITS: [(&str, &[&str]); 3] = [
    ("local-fs", &["local-fs.target"]),
    ("services", &["basic.target"]),
    ("login", &["display-manager.service", "getty.target"]),
];

/// When each stage of this boot began, nanoseconds of CLOCK_MONOTONIC; systemd had finished at `finished_ns`.
/// What it does not tell is left out.
pub fn stages(
    manager: &mut Manager,
    finished_ns: Option<u64>,
    sessions: Sessions,
    own: Vec<(u64, String)>,
) -> io::Result<Vec<(u64, String)>> {
    let mut stages = Vec::new();
    for (name, units) in UNITS {
        for unit in units {
            if let Some(at) = manager.active_ns(unit)? {
                stages.push((at, name.to_owned()));
                break;
            }
        }
    }
    Ok(merge(up(stages, finished_ns), sessions, own))
}

/// The same where systemd tells nothing.
pub fn without_systemd(
    finished_ns: Option<u64>,
    sessions: Sessions,
    own: Vec<(u64, String)>,
) -> Vec<(u64, String)> {
    merge(up(Vec::new(), finished_ns), sessions, own)
}

fn up(mut stages: Vec<(u64, String)>, finished_ns: Option<u64>) -> Vec<(u64, String)> {
    stages.extend(finished_ns.map(|at| (at, stage::UP.to_owned())));
    stages
}

/// Marks in order of time, each stage once, beginning with its first mark.
fn merge(mut stages: Vec<(u64, String)>, sessions: Sessions, own: Vec<(u64, String)>) -> Vec<(u64, String)> {
    stages.extend(sessions.greeter_ns.map(|at| (at, "login".to_owned())));
    stages.extend(sessions.user_ns.map(|at| (at, stage::SESSION.to_owned())));
    stages.extend(own);
    stages.sort_small();
    let mut seen = std::collections::HashSet::new();
    stages.retain(|(_, stage)| seen.insert(stage.clone()));
    // A trace holds no more; one stage is the release of whoever waited.
    stages.truncate(limits::MARKS - 1);
    stages
}

/// The stages, with the time when whoever waited at the barrier was released. A user's own mark of that name
/// is none.
pub fn with_release(mut stages: Vec<(u64, String)>, released_ns: Option<u64>) -> Vec<(u64, String)> {
    stages.retain(|(_, stage)| stage != stage::RELEASED);
    stages.extend(released_ns.map(|at| (at, stage::RELEASED.to_owned())));
    stages.sort_small();
    stages
}

/// The stages as marks of a trace whose time begins at `began_ns`.
pub fn marks(stages: &[(u64, String)], began_ns: u64) -> Vec<Mark> {
    let mark = |(at, stage): &(u64, String)| Mark {
        time_ns: at.saturating_sub(began_ns),
        stage: stage.clone(),
    };
    stages.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_begins_with_its_first_mark_and_all_are_in_order() {
        let named = |all: &[(u64, &str)]| -> Vec<(u64, String)> {
            all.iter().map(|(at, name)| (*at, (*name).to_owned())).collect()
        };
        let sessions = Sessions {
            greeter_ns: Some(50),
            user_ns: Some(90),
        };
        let stages = merge(
            named(&[(10, "local-fs"), (60, "login")]),
            sessions,
            named(&[(70, "mine"), (95, "mine")]),
        );
        assert_eq!(
            stages,
            named(&[(10, "local-fs"), (50, "login"), (70, "mine"), (90, "session")])
        );
        let many = (0..5000).map(|at| (at, format!("mark-{at}"))).collect();
        assert_eq!(
            merge(many, Sessions::default(), Vec::new()).len(),
            limits::MARKS - 1
        );
        let marks = marks(&stages, 20);
        assert_eq!(
            marks.iter().map(|m| m.time_ns).collect::<Vec<_>>(),
            [0, 30, 50, 70]
        );
    }

    #[test]
    fn a_release_is_a_mark_and_a_user_cannot_make_one() {
        let named = |at, name: &str| (at, name.to_owned());
        let stages = vec![named(10, "local-fs"), named(30, "released"), named(60, "up")];
        assert_eq!(
            with_release(stages.clone(), Some(20)),
            [named(10, "local-fs"), named(20, "released"), named(60, "up")]
        );
        assert_eq!(
            with_release(stages, None),
            [named(10, "local-fs"), named(60, "up")]
        );
    }
}

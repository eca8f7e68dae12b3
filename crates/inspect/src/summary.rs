//! The first lines of `headstart status`: what is on, what it saved, what it cost.

use crate::human::{bytes, duration, printable};
use crate::status::KeyStatus;
use crate::table::{COLUMNS, sentences};
use headstart_bench::statistics::{bootstrap, median, pick};
use headstart_learn::verdict::present;
use headstart_learn::verdict::start::Start;
use headstart_model::Outcome;
use headstart_model::outcome::Mode;

/// Days that are summed up.
const DAYS: u64 = 30;

/// The same, nanoseconds.
const SPAN_NS: u64 = DAYS * 86_400_000_000_000;

/// What of headstart is on, and what its daemon costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Whether boots are enabled; `None` where that is another state directory's matter.
    pub boots: Option<bool>,
    /// Whether these are a user's own starts by `headstart run`, and no others.
    pub has_own_state: bool,
    /// Whether the daemon runs.
    pub runs: bool,
    /// What it costs; `None` where that is not counted.
    pub daemon: Option<DaemonCost>,
}

/// What the daemon costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonCost {
    /// Memory that is its own, bytes.
    pub memory: u64,
    /// CPU time since it began, nanoseconds.
    pub cpu_ns: u64,
    /// Since when, nanoseconds.
    pub age_ns: u64,
}

/// The lines for people.
pub fn text(statuses: &[KeyStatus], running: &Running, now_unix_ns: u64) -> String {
    let since = now_unix_ns.saturating_sub(SPAN_NS);
    sentences(
        COLUMNS,
        [
            ("on", on(statuses, running)),
            ("saved", saved(statuses, since)),
            ("cost", cost(statuses, running, since)),
        ],
    )
}

fn on(statuses: &[KeyStatus], running: &Running) -> String {
    let boots = match running.boots {
        None => String::new(),
        Some(true) => "Boots are served. ".to_owned(),
        Some(false) => "Boots are not served (`headstart boot enable`). ".to_owned(),
    };
    let daemon = match (running.runs, running.boots) {
        (true, _) => "The daemon serves programs. ",
        (false, Some(_)) => "The daemon does not run, so only `headstart run` serves programs. ",
        (false, None) => "",
    };
    let is_read_ahead =
        |status: &&KeyStatus| status.enabled && status.bypass.is_none() && status.plan.is_some();
    let read_ahead = statuses.iter().filter(is_read_ahead).count();
    let known = match (read_ahead, statuses.len()) {
        (_, 0) => "Nothing is known yet: `headstart run -- CMD` begins.".to_owned(),
        (0, all) => format!(
            "{} known, and none is read ahead: {}.",
            keys(all),
            why_none(statuses)
        ),
        (some, 1) => format!("{some} known key is read ahead."),
        (some, all) => format!("{some} of {all} known keys are read ahead."),
    };
    let others = match running.has_own_state {
        true => {
            " These are your own starts by `headstart run`; `headstart apps list` has those that the daemon serves."
        }
        false => "",
    };
    format!("{boots}{daemon}{known}{others}")
}

fn keys(count: usize) -> String {
    match count {
        1 => "1 key is".into(),
        count => format!("{count} keys are"),
    }
}

/// Why nothing is read ahead, of the key with the most starts.
fn why_none(statuses: &[KeyStatus]) -> String {
    let most = statuses.iter().max_by_key(|status| status.outcomes.len());
    let Some(status) = most else { return String::new() };
    let why = match (&status.bypass, status.enabled) {
        (_, false) => "it is disabled".to_owned(),
        (Some(bypass), _) => bypass.why.clone(),
        (None, _) if status.plan.is_none() && status.outcomes.len() > 1 => {
            let last = status.outcomes.last();
            match last.and_then(|outcome| outcome.not_learned.as_ref()) {
                Some(why) => format!("its last start taught nothing: {why}"),
                None => {
                    "no plan could be made of its starts, or kept: the log in the state directory says why"
                        .to_owned()
                }
            }
        }
        (None, _) => "it has been started too seldom yet".to_owned(),
    };
    printable(&format!("of {} because {why}", status.key))
}

/// What the replays of a key saved since then, and the ends of an interval of that, nanoseconds.
fn saved_of(status: &KeyStatus, since: u64) -> Option<[f64; 3]> {
    if !status.comparison.is_shown() {
        return None;
    }
    let starts = present(&status.outcomes).0;
    let elapsed = |start: &Start| start.elapsed_ns as f64;
    let without: Vec<f64> = starts
        .iter()
        .filter(|start| !start.replayed())
        .map(elapsed)
        .collect();
    let with: Vec<f64> = starts
        .iter()
        .filter(|start| start.replayed() && start.started_unix_ns >= since)
        .map(elapsed)
        .collect();
    let middle = status.comparison.without.median_ns? as f64;
    let saved = |without: f64| with.iter().map(|took| without - took).sum::<f64>();
    let [low, high] = bootstrap(without.len(), |draw| median(&pick(&without, draw))).unwrap_or([middle; 2]);
    Some([middle, low.min(middle), high.max(middle)].map(saved))
}

fn saved(statuses: &[KeyStatus], since: u64) -> String {
    let shown: Vec<[f64; 3]> = statuses
        .iter()
        .filter_map(|status| saved_of(status, since))
        .collect();
    if shown.is_empty() {
        return match statuses.iter().any(|status| status.plan.is_some()) {
            true => "Not known yet: too few starts without reading ahead to compare with.".into(),
            false => "Nothing.".into(),
        };
    }
    let sum = |index: usize| shown.iter().map(|saved| saved[index]).sum::<f64>();
    let time = |ns: f64| match ns < 0.0 {
        true => format!("-{}", duration(-ns as u64)),
        false => duration(ns as u64),
    };
    format!(
        "{} of waiting in the last {DAYS} days (95 % sure: {} to {}).",
        time(sum(0)),
        time(sum(1)),
        time(sum(2))
    )
}

fn cost(statuses: &[KeyStatus], running: &Running, since: u64) -> String {
    let wasted = |outcome: &Outcome| {
        let pages: u64 = outcome.stages.iter().map(|stage| stage.wasted_pages).sum();
        pages
    };
    let wasted: u64 = statuses
        .iter()
        .map(|status| {
            let replays = status.outcomes.iter();
            let replays =
                replays.filter(|outcome| outcome.mode == Mode::Replay && outcome.started_unix_ns >= since);
            let page_size = status.profile.as_ref().map_or(4096, |profile| profile.page_size);
            replays.map(wasted).sum::<u64>() * u64::from(page_size)
        })
        .sum();
    let daemon = running.daemon.map_or(String::new(), |daemon| {
        format!(
            "The daemon takes {} of memory, and took {} of processors in {}. ",
            bytes(daemon.memory),
            duration(daemon.cpu_ns),
            duration(daemon.age_ns)
        )
    });
    format!(
        "{daemon}{} were read in the last {DAYS} days and not used.",
        bytes(wasted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Bypass, PlanStatus};
    use headstart_learn::verdict::compare;
    use headstart_model::Key;
    use headstart_model::outcome::{Resident, StageOutcome};

    const NOW: u64 = 100 * 86_400_000_000_000;
    const S: u64 = 1_000_000_000;

    fn outcome(mode: Mode, started_unix_ns: u64, elapsed_ns: u64) -> Outcome {
        Outcome {
            started_unix_ns,
            elapsed_ns,
            status: Some(0),
            resident_before: Some(Resident {
                sampled_pages: 100,
                resident_pages: 0,
            }),
            stages: vec![StageOutcome {
                wasted_pages: 256,
                ..StageOutcome::default()
            }],
            ..Outcome::new(Key::new("/usr/bin/x").unwrap(), mode)
        }
    }

    fn status(outcomes: Vec<Outcome>) -> KeyStatus {
        KeyStatus {
            key: "/usr/bin/x".into(),
            profile: None,
            plan: Some(PlanStatus {
                created_unix_ns: 1,
                requests: 1,
                data_bytes: 1,
                metadata_bytes: 1,
            }),
            traces: 1,
            imported: None,
            floor: None,
            comparison: compare(&outcomes),
            controls: None,
            control_every: None,
            enabled: true,
            bypass: None,
            outcomes,
        }
    }

    /// A control of about 10 s, and replays of 4 s, in turns, within the month.
    fn served() -> KeyStatus {
        let outcomes = (0..40).map(|i| {
            let started = NOW - SPAN_NS / 2 + i * S * 60;
            match i % 4 {
                0 => outcome(Mode::Control, started, 10 * S + i * S / 100),
                _ => outcome(Mode::Replay, started, 4 * S + i * S / 200),
            }
        });
        status(outcomes.collect())
    }

    #[test]
    fn three_lines_say_what_is_on_what_it_saved_and_what_it_cost() {
        let running = Running {
            boots: Some(true),
            runs: true,
            has_own_state: false,
            daemon: Some(DaemonCost {
                memory: 14 << 20,
                cpu_ns: 41 * S,
                age_ns: 7200 * S,
            }),
        };
        let text = text(&[served()], &running, NOW);
        assert!(
            text.contains("Boots are served. The daemon serves programs."),
            "{text}"
        );
        // 30 replays, each about 6 s sooner.
        assert!(
            text.contains("3 min 2 s of waiting in the last 30 days (95 % sure: 2 min 58 s to"),
            "{text}"
        );
        assert!(text.contains("30.0 MiB were read"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn what_was_longer_ago_is_not_of_this_month() {
        let text = text(&[served()], &Running::default(), NOW + SPAN_NS);
        assert!(
            text.contains("0 s of waiting") && text.contains("0 B were read"),
            "{text}"
        );
    }

    #[test]
    fn where_it_does_nothing_it_says_why() {
        let bypassed = KeyStatus {
            bypass: Some(Bypass {
                why: "it hardly waits for disks".into(),
                every: 10,
            }),
            ..status(vec![outcome(Mode::Record, NOW - S, S)])
        };
        let text = text(&[bypassed], &Running::default(), NOW);
        assert!(text.contains("1 key is known, and none is read ahead"), "{text}");
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("of /usr/bin/x because it hardly waits for disks."),
            "{text}"
        );
        assert!(said.contains("saved Not known yet"), "{text}");
        let why = |outcomes: Vec<Outcome>, enabled| {
            why_none(&[KeyStatus {
                plan: None,
                enabled,
                ..status(outcomes)
            }])
        };
        let started = outcome(Mode::Record, NOW - S, S);
        let in_vain = Outcome {
            not_learned: Some("8 events were lost".into()),
            ..started.clone()
        };
        for (outcomes, enabled, expected) in [
            (vec![started.clone()], true, "it has been started too seldom yet"),
            (vec![started.clone(); 2], false, "it is disabled"),
            (
                vec![started.clone(); 2],
                true,
                "no plan could be made of its starts, or kept: the log in the state directory says why",
            ),
            (
                vec![started, in_vain],
                true,
                "its last start taught nothing: 8 events were lost",
            ),
        ] {
            assert_eq!(
                why(outcomes, enabled),
                format!("of /usr/bin/x because {expected}")
            );
        }
        let nothing = super::text(&[], &Running::default(), NOW);
        assert!(nothing.contains("Nothing is known yet"), "{nothing}");
    }
}

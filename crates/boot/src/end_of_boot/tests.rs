use super::*;

/// A boot that is watched, and a clock for it.
struct Watched {
    end: End,
    start: Instant,
}

impl Watched {
    fn new() -> Watched {
        let start = Instant::now();
        Watched {
            end: End::new(start),
            start,
        }
    }

    /// Looks at it each second, while so much is read and computed each second; whether it was too long
    /// at some time.
    fn goes_on(&mut self, seconds: std::ops::Range<u64>, pages: u64, cpu: f64) -> bool {
        let mut before = self
            .end
            .since
            .take()
            .map_or(Progress::default(), |(_, before)| before);
        self.end.since = Some((self.start + Duration::from_secs(seconds.start), before.clone()));
        seconds.into_iter().any(|second| {
            before.pages += pages;
            before.cpu_seconds += cpu;
            let now = self.start + Duration::from_secs(second + 1);
            self.end.is_quiet(&before, now);
            self.end.is_too_long(now)
        })
    }
}

#[test]
fn a_few_pages_and_little_cpu_are_quiet() {
    let start = Instant::now();
    let mut end = End {
        up: true,
        ..End::new(start)
    };
    let mut at = |seconds: u64, pages, cpu_seconds| {
        let progress = Progress { pages, cpu_seconds };
        end.is_quiet(&progress, start + Duration::from_secs(seconds))
    };
    assert!(!at(0, 1000, 1.0));
    assert!(!at(1, 1030, 1.1));
    assert!(!at(2, 1100, 1.1), "new pages");
    assert!(!at(4, 1101, 2.0), "CPU");
    assert!(!at(6, 1102, 2.1));
    assert!(at(7, 1103, 2.2));
}

#[test]
fn a_boot_that_does_not_end_is_cut_off() {
    let busy = |pages, cpu| {
        let mut watched = Watched::new();
        assert!(!watched.goes_on(0..119, pages, cpu));
        watched.goes_on(119..121, pages, cpu)
    };
    assert!(busy(1000, 0.0) && busy(0, 0.5) && busy(40, 0.2));
    let now = Instant::now();
    let mut end = End::new(now);
    end.begins(now + Duration::from_secs(60));
    assert!(!end.is_too_long(now + LIMIT), "it began later");
}

#[test]
fn while_somebody_is_waited_for_nothing_is_forgotten_and_not_for_ever() {
    let mut watched = Watched::new();
    // A minute of start, ten minutes until the passphrase is typed, and what comes behind it.
    assert!(!watched.goes_on(0..60, 1000, 0.9));
    assert!(!watched.goes_on(60..660, 1, 0.01));
    assert!(
        (590..=600).contains(&watched.end.waited.as_secs()),
        "{:?}",
        watched.end.waited
    );
    assert!(!watched.goes_on(660..715, 1000, 0.9));
    assert!(
        watched.goes_on(715..740, 1000, 0.9),
        "two minutes in which it did something"
    );
    let mut watched = Watched::new();
    assert!(!watched.goes_on(0..LONGEST.as_secs() - 1, 0, 0.0));
    assert!(watched.goes_on(LONGEST.as_secs() - 1..LONGEST.as_secs() + 1, 0, 0.0));
}

#[test]
fn a_boot_is_good_that_was_up_and_is_shut_down_in_good_order() {
    let end = |has_basics, is_shut_down| End {
        has_basics,
        is_shut_down,
        ..End::new(Instant::now())
    };
    assert!(end(true, true).is_good() && end(true, true).is_whole());
    let stopped = End {
        is_stopped_alone: true,
        ..end(true, true)
    };
    assert!(stopped.is_good() && !stopped.is_whole(), "the boot goes on");
    assert!(!end(true, false).is_good(), "it may hang yet");
    assert!(
        !end(false, true).is_good() || sessions().user_ns.is_some(),
        "it was not up"
    );
    let mut late = end(false, true);
    late.begun = late.begun.checked_sub(LIMIT).unwrap();
    assert!(late.is_good());
    late.is_shut_down = false;
    assert_eq!(
        late.is_good(),
        !Path::new(SYSTEMD).exists(),
        "nobody tells without systemd"
    );
    let finished = End {
        finished_ns: Some(1),
        ..end(false, false)
    };
    assert!(finished.is_good());
}

#[test]
fn systemd_that_is_gone_before_it_answers_does_not_go_on() {
    let up = || End {
        has_basics: true,
        ..End::new(Instant::now())
    };
    let mut end = up();
    end.note_last_answer(Err(io::ErrorKind::ConnectionReset.into()));
    end.is_shut_down = true;
    assert!(end.is_whole(), "it took the connection, and was gone");
    let mut end = up();
    end.note_last_answer(Ok(()));
    end.is_shut_down = true;
    assert!(!end.is_whole(), "it told nothing of a shutdown");
    end.note_last_answer(Ok(()));
    assert!(end.is_whole(), "it told of one");
}

#[test]
fn where_systemd_refuses_to_answer_it_is_asked_once_and_signs_tell() {
    let mut end = End::new(Instant::now());
    let refusal = io::Error::new(io::ErrorKind::PermissionDenied, "SELinux policy denies access");
    end.cannot_ask(&io::Error::from(io::ErrorKind::ConnectionRefused));
    assert_eq!(end.refused(), None, "it does not listen yet");
    end.cannot_ask(&refusal);
    end.cannot_ask(&io::ErrorKind::PermissionDenied.into());
    assert_eq!(end.refused(), Some("SELinux policy denies access"));
    let kind = end.manager().err().map(|error| error.kind());
    assert_eq!(kind, Some(io::ErrorKind::PermissionDenied), "without a question");

    let closed = BootSigns {
        is_closed: true,
        ..BootSigns::default()
    };
    end.note_signs(BootSigns::default(), 1);
    end.note_signs(closed, 2);
    assert!(
        !end.is_good() && !end.has_basics && !end.is_shut_down(),
        "users may not log in yet"
    );
    end.note_signs(BootSigns::default(), 3);
    end.note_signs(BootSigns::default(), 4);
    assert_eq!(end.finished_ns(), Some(3), "they may, whatever they log in at");
    assert!(end.is_good() && !end.is_shut_down() && !end.has_failed());
    end.note_signs(closed, 5);
    assert!(end.is_shut_down() && end.is_whole() && end.finished_ns() == Some(3));
}

#[test]
fn by_signs_a_prompt_or_a_screen_is_an_end_and_a_shell_to_mend_is_a_failure() {
    let end_with = |signs| {
        let mut end = End::new(Instant::now());
        end.note_signs(signs, 7);
        end
    };
    let none = BootSigns::default();
    let prompt = end_with(BootSigns { prompt: true, ..none });
    assert!(prompt.finished_ns() == Some(7) && prompt.is_good() && !prompt.screen);
    let screen = end_with(BootSigns { screen: true, ..none });
    assert!(screen.finished_ns() == Some(7) && screen.screen);
    assert!(!end_with(none).is_good());
    let early = end_with(BootSigns {
        prompt: true,
        is_closed: true,
        ..none
    });
    assert!(early.finished_ns().is_none() && !early.is_shut_down());
    let mending = end_with(BootSigns {
        mending: true,
        is_closed: true,
        ..none
    });
    assert!(mending.has_failed() && mending.finished_ns().is_none());
}

#[test]
fn who_logs_in_at_a_screen_begins_a_start_of_the_daemons_where_that_runs() {
    let end = |has_daemon, greeter_ns| End {
        has_daemon,
        greeter_ns,
        ..End::new(Instant::now())
    };
    let at = |greeter_ns, user_ns| Sessions { greeter_ns, user_ns };
    for (seen_ns, sessions, user_ns, login_ns) in [
        (None, at(None, None), None, None),
        (None, at(Some(5), None), None, None),
        (None, at(Some(5), Some(9)), None, Some(9)),
        // The screen's session is over, and was seen before.
        (Some(5), at(None, Some(9)), None, Some(9)),
        // A boot that logs somebody in by itself.
        (None, at(None, Some(9)), Some(9), None),
        (None, at(Some(9), Some(5)), Some(5), None),
    ] {
        let (of_boot, apart_ns) = end(true, seen_ns).of_boot(sessions);
        assert_eq!(
            (of_boot.user_ns, apart_ns),
            (user_ns, login_ns),
            "{seen_ns:?} {sessions:?}"
        );
        let (of_boot, apart_ns) = end(false, seen_ns).of_boot(sessions);
        assert_eq!(
            (of_boot.user_ns, apart_ns),
            (sessions.user_ns, None),
            "without the daemon"
        );
    }
    // Whether this machine has a session now or not.
    let has_one = sessions().user_ns.is_some();
    assert_eq!(end(false, Some(5)).has_session(), has_one);
    assert!(end(true, Some(5)).has_session());
}

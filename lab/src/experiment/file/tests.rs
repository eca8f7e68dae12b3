use super::*;

const GOOD: &str = "question = 'is it faster?'\nmachine = 'chroot'\nworkload = 'git'\ndisk = 'flash4ms'\nsetups = ['none', 'headstart']\nrounds = 3\n";

fn wrong(text: &str) -> String {
    format!("{:#}", parse(text, Path::new("x/e.toml")).unwrap_err())
}

#[test]
fn a_short_file_is_enough() {
    let e = parse(GOOD, Path::new("x/e.toml")).unwrap();
    assert_eq!(
        (e.name.as_str(), e.base.as_str(), e.rounds, e.cases.len()),
        ("e", "none", 3, 1)
    );
    assert_eq!(e.cases[0].title(), "git on chroot, ext4, disk flash4ms");
}

#[test]
fn a_case_has_a_server_that_needs_its_time() {
    let with = |ms: &str| format!("{GOOD}[[case]]\nname = 'a'\n[[case]]\nname = 'b'\nanswer_ms = {ms}\n");
    let cases = parse(&with("0.5"), Path::new("e.toml")).unwrap().cases;
    assert_eq!(
        [cases[0].answer, cases[1].answer],
        [None, Some(Duration::from_micros(500))]
    );
    assert!(
        cases[1].title().ends_with(", 0.5 ms an answer"),
        "{}",
        cases[1].title()
    );
    for ms in ["0.0", "-1.0", "1000.5", "nan"] {
        let error = wrong(&with(ms));
        assert!(error.contains("line 11: answer_ms: "), "{error}");
    }
}

#[test]
fn rounds_can_be_cut() {
    let e = parse(GOOD, Path::new("e.toml")).unwrap().with_rounds(2).unwrap();
    assert_eq!((e.rounds, e.asked), (2, Some(3)));
    let e = e.with_rounds(3).unwrap();
    assert_eq!((e.rounds, e.asked), (3, None));
    assert!(e.with_rounds(0).unwrap_err().to_string().contains("--rounds 0"));
}

#[test]
fn cases_take_what_they_do_not_say_from_the_experiment() {
    let text = format!("{GOOD}[[case]]\nname = 'a'\n[[case]]\nname = 'b'\ndisk = 'disk2007'\nfs = 'xfs'\n");
    let cases = parse(&text, Path::new("e.toml")).unwrap().cases;
    assert_eq!(
        [cases[0].model.name.as_str(), cases[1].model.name.as_str()],
        ["flash4ms", "disk2007"]
    );
    assert_eq!(cases[1].fs, Fs::Xfs);
}

#[test]
fn a_setup_goes_on_from_one_that_stands_before_it() {
    let goes_on = |setups: &str| {
        let text = GOOD.replace("'none', 'headstart'", setups);
        let setups = parse(&text, Path::new("e.toml")).unwrap().setups;
        setups.into_iter().map(|s| s.goes_on_from).collect::<Vec<_>>()
    };
    let named = |name: &str| Some(name.to_owned());
    let setups = "'boot-none', 'boot-headstart-init', 'boot-layout'";
    assert_eq!(goes_on(setups), [None, None, named("headstart-init")]);
    assert_eq!(goes_on("'boot-layout', 'boot-headstart-init'"), [None, None]);
}

#[test]
fn a_setup_may_stand_in_the_experiment_with_its_profile() {
    let with = |table: &str| GOOD.replace("'headstart'", table);
    let table = "'own-third', {like = 'imported', name = 'votes', profile = '../votes.profiles'}";
    let e = parse(&with(table), Path::new("x/e.toml")).unwrap();
    assert_eq!(e.setups[2].name, "votes");
    assert_eq!(
        e.setups[2].profile.as_deref(),
        Some(Path::new("x/../votes.profiles"))
    );
    let goal = |of: &str| format!("{}[[goal]]\nsetup = 'votes'\n{of}at_most = 0.1\n", with(table));
    let e = parse(
        &goal("figure = 'gain-lost'\nof = 'own-third'\n"),
        Path::new("x/e.toml"),
    )
    .unwrap();
    assert_eq!(e.goals[0].of.as_deref(), Some("own-third"));
    for of in [
        "figure = 'gain-lost'\n",
        "figure = 'gain-lost'\nof = 'mine'\n",
        "figure = 'L'\nof = 'none'\n",
    ] {
        let error = wrong(&goal(of));
        assert!(error.contains("line 7: goal.of: gain-lost"), "{error}");
    }
    assert!(wrong(&with("{like = 'imported'}")).contains("line 5: setups: the setup : name"));
    assert!(wrong(&with("7")).contains("the name of a setup, or a table"));
}

#[test]
fn an_earlier_build_gets_a_twin_of_each_setup_that_calls_headstart_and_is_not_for_this_one_only() {
    let text = GOOD.replace(
        "'none', 'headstart'",
        "'none', 'headstart', 'replay-first', 'layout', 'warm'",
    );
    let e = parse(&text, Path::new("e.toml"))
        .unwrap()
        .with_earlier_build()
        .unwrap();
    let setups: Vec<(&str, Option<&str>)> = e
        .setups
        .iter()
        .map(|s| {
            (
                s.name.as_str(),
                s.state_of.as_deref().or(s.goes_on_from.as_deref()),
            )
        })
        .collect();
    let expected = [
        ("none", None),
        ("headstart", None),
        ("headstart-earlier", None),
        ("replay-first", Some("headstart")),
        ("replay-first-earlier", Some("headstart-earlier")),
        ("layout", Some("headstart")),
        ("warm", None),
    ];
    assert_eq!(setups, expected);
    let again = e.with_earlier_build().unwrap_err().to_string();
    assert!(again.contains("-earlier already"), "{again}");
    let text = GOOD.replace("'none', 'headstart'", "'none', 'warm'");
    let error = parse(&text, Path::new("e.toml")).unwrap().with_earlier_build();
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("no setup here calls headstart")
    );
}

#[test]
fn a_case_has_what_a_setup_runs_beside_starts() {
    let with = |name: &str| format!("{GOOD}\n[[case]]\nname = 'a'\nbeside = '{name}'\n");
    let e = parse(&with("writer"), Path::new("e.toml")).unwrap();
    let (case, setup) = (&e.cases[0], &e.setups[0]);
    let beside = case.setup(setup);
    assert!(setup.beside.is_empty() && !beside.beside.is_empty());
    assert!(beside.file.contains_key("writer") && beside.name == setup.name);
    assert!(case.title().ends_with(", beside writer"), "{}", case.title());
    let none = wrong(&with("none"));
    assert!(none.contains("case.beside: that setup has nothing"), "{none}");
}

#[test]
fn errors_name_file_line_and_key() {
    for (from, to, line, said) in [
        ("'flash4ms'", "'floppy'", 4, "disk: no disk"),
        ("'git'", "'doom'", 3, "workload: no workload"),
        ("'headstart'", "'hedstart'", 5, "setups: no setup"),
        ("'headstart'", "'none'", 5, "twice"),
        ("'headstart'", "'tools/x.toml'", 5, "x/tools/x.toml"),
        ("rounds = 3", "rounds = 0", 6, "rounds"),
        (
            "rounds = 3",
            "rounds = 3\nbase = 'cold'",
            7,
            "base: \"cold\" is none of the setups none, headstart",
        ),
        (
            "rounds = 3",
            "rounds = 3\n[[goal]]\nsetup = 'warm'\nfigure = 'L'\nat_most = 1.1",
            7,
            "goal.setup: \"warm\" is none of the setups none, headstart",
        ),
    ] {
        let error = wrong(&GOOD.replace(from, to));
        assert!(
            error.contains(&format!("x/e.toml, line {line}: ")) && error.contains(said),
            "{error}"
        );
    }
    for (from, to, line, said) in [
        ("rounds = 3", "round = 3", 6, "unknown field `round`"),
        ("'chroot'", "'chrot'", 2, "chroot"),
        ("rounds = 3", "rounds = 'three'", 6, "invalid type"),
        ("disk = 'flash4ms'", "disk = ", 4, ""),
    ] {
        let error = wrong(&GOOD.replace(from, to));
        assert!(
            error.contains(&format!("line {line}")) && error.contains("x/e.toml") && error.contains(said),
            "{error}"
        );
    }
    assert!(wrong(&GOOD.replace("machine = 'chroot'\n", "")).contains("machine: missing"));
}

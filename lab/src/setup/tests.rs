//! Setups that ship, and setups that are refused.

use super::*;

fn names() -> Names {
    let values = [
        ("state", "/s"),
        ("headstart", "/bin/hs"),
        ("workload", "w"),
        ("mount", "/m"),
        ("root", "/m"),
        ("files", "/f"),
        ("disk", "flash,100,1,1"),
        ("profile", "/p"),
    ];
    Names {
        values: values.map(|(k, v)| (k, v.to_owned())).into(),
        program: vec!["chroot".into(), "/m".into(), "/bin/true".into()],
    }
}

#[test]
fn built_in_setups_parse() {
    for (name, _) in BUILT_IN {
        let setup = Setup::load(name).unwrap();
        assert!(!setup.name.is_empty() && !setup.description.is_empty(), "{name}");
        for command in setup.commands() {
            names().fill(command).unwrap();
        }
    }
}

#[test]
fn what_is_learned_from_is_a_number_or_commands() {
    let parse = |text: &str| toml::from_str::<Setup>(text);
    assert_eq!(parse("record = 2").unwrap().record.commands(), [None, None]);
    let setup = parse("record = [['a', '{program}']]").unwrap();
    assert_eq!(setup.record.commands()[0].unwrap()[0], "a");
    assert_eq!(setup.start, ["{program}"]);
    let error = parse("record = 'twice'").unwrap_err().to_string();
    assert!(
        error.contains("a number of starts") && error.contains("line 1"),
        "{error}"
    );
    let error = parse("cache = 'hot'").unwrap_err().to_string();
    assert!(error.contains("drop-all"), "{error}");
}

#[test]
fn headstart_wraps_the_program() {
    let setup = Setup::load("headstart").unwrap();
    let line = names().fill(&setup.start).unwrap().join(" ");
    assert_eq!(line, "/bin/hs --state /s run --name w -- chroot /m /bin/true");
    assert!(setup.needs_headstart() && !Setup::load("none").unwrap().needs_headstart());
}

#[test]
fn before_replays_then_starts_plainly() {
    let setup = Setup::load("before").unwrap();
    assert_eq!(
        names().fill(&setup.prepare[0]).unwrap().join(" "),
        "/bin/hs --state /s replay w --wait"
    );
    assert_eq!(names().fill(&setup.start).unwrap(), names().program);
}

#[test]
fn a_peer_is_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmtouch.toml");
    std::fs::write(
        &path,
        "prepare = [['vmtouch', '-t', '{mount}/usr']]\nstart = ['{program}']\n",
    )
    .unwrap();
    let setup = Setup::load(path.to_str().unwrap()).unwrap();
    assert_eq!(setup.name, "vmtouch");
    assert_eq!(names().fill(&setup.prepare[0]).unwrap()[2], "/m/usr");
}

#[test]
fn a_setup_like_another_differs_where_it_says_so() {
    let (twenty, three) = (
        Setup::load("boot-headstart-20").unwrap(),
        Setup::load("boot-headstart").unwrap(),
    );
    assert_eq!((twenty.name.as_str(), twenty.record.len()), ("headstart-20", 20));
    assert_eq!((three.record.len(), &three.install), (3, &twenty.install));
    let directory = tempfile::tempdir().unwrap();
    let wrong = |text: &str| {
        let path = directory.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        format!("{:#}", Setup::load(path.to_str().unwrap()).unwrap_err())
    };
    assert!(wrong("like = 'warm'\nstrat = ['x']").contains("strat"));
    assert!(wrong("like = 'hot'").contains("no setup \"hot\""));
    assert!(wrong("like = 'boot-headstart-20'").contains("like another itself"));
}

#[test]
fn a_file_may_be_a_hook_of_the_package() {
    let setup = Setup::load("boot-hydrate-vm-golden").unwrap();
    assert!(setup.file["hook"].contains("\n    copy_file ranges \"$list\"\n"));
    assert!(setup.file["premount"].contains("@headstart-hydrate"));
}

#[test]
fn a_table_is_a_setup_that_has_a_name() {
    let of = |text: &str| Setup::of_table(toml::from_str(text).unwrap(), "");
    let setup = of("like = 'imported'\nname = 'votes'\nprofile = 'votes.profiles'").unwrap();
    let imported = Setup::load("imported").unwrap();
    assert_eq!((setup.name.as_str(), &setup.start), ("votes", &imported.start));
    assert_eq!(setup.profile.unwrap(), Path::new("votes.profiles"));
    assert!(
        of("like = 'imported'")
            .unwrap_err()
            .to_string()
            .contains("must not be empty")
    );
    assert!(format!("{:#}", of("name = 'x'\nprofiles = 'y'").unwrap_err()).contains("profiles"));
}

#[test]
fn misspelt_placeholder_is_named() {
    let error = names().fill(&["{stat}/x".into()]).unwrap_err().to_string();
    assert!(error.contains("{stat}") && error.contains("state"), "{error}");
    assert!(Setup::load("hot").unwrap_err().to_string().contains("before"));
}

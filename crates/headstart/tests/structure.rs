//! The house as docs/architecture.md draws it: arrows point down, and no two modules import one another,
//! directly or around.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates by floor, from the ground up: a crate uses only those of lower floors.
const FLOORS: [&[&str]; 8] = [
    &["model"],
    &["system"],
    &["record", "learn", "plan", "replay", "store", "compare", "bench"],
    &["start"],
    &["boot", "daemon", "inspect", "layout", "run"],
    &["start-commands"],
    &["user-commands"],
    &["headstart"],
];

/// Crates that ask nothing of the machine.
const PURE: [&str; 4] = ["learn", "plan", "compare", "bench"];

/// Crates of which the program that runs at starts and boots has nothing, directly or around: what only
/// people call, and what moves files.
const NOT_AT_BOOT: [&str; 5] = ["bench", "compare", "inspect", "layout", "user-commands"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn floor(name: &str) -> usize {
    FLOORS
        .iter()
        .position(|floor| floor.contains(&name))
        .unwrap_or_else(|| panic!("crate {name} has no floor in this test"))
}

/// What a page may have, in words: a reader has an evening for all of them.
const MOST_WORDS: [(&str, usize); 3] = [
    ("README.md", 850),
    ("docs/architecture.md", 2500),
    ("docs/measurements.md", 1500),
];

/// And a decision, without its history.
const MOST_WORDS_OF_A_DECISION: usize = 400;

/// The longest function of the engine, lines.
const MOST_LINES_OF_A_FUNCTION: usize = 80;

#[test]
fn no_function_of_the_engine_is_long() {
    let mut seen = 0;
    let engine = ["start/src", "run/src"].map(|part| modules(&crates().join(part)));
    for (module, text) in engine.into_iter().flatten() {
        let lines: Vec<&str> = text.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let begin = line.trim_start();
            let words = ["pub ", "pub(crate) ", "pub(super) ", "const ", "unsafe "];
            let begin = words
                .iter()
                .fold(begin, |begin, word| begin.strip_prefix(word).unwrap_or(begin));
            if !begin.starts_with("fn ") {
                continue;
            }
            // As rustfmt writes it.
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let Some(length) = lines[first..].iter().position(|line| *line == end) else {
                continue;
            };
            seen += 1;
            assert!(
                length < MOST_LINES_OF_A_FUNCTION,
                "{}: {begin} has {} lines, {MOST_LINES_OF_A_FUNCTION} at most",
                module.join("::"),
                length + 1
            );
        }
    }
    assert!(seen > 200, "only {seen} functions were found");
}

/// What `Start` alone holds of a start: what was decided, its replay, and what of its plan was in memory.
const HELD: [&str; 4] = ["Decision", "Replay", "Replayed", "Resident"];

/// Others that have a replay: the parts of a boot's, one for each file system, which are one `Reads`; and
/// what somebody asks to have read without a start (`apps now`).
const OTHERS: [&str; 2] = ["boot::replays", "daemon::serve::state"];

#[test]
fn a_start_alone_holds_what_was_decided_for_it() {
    let (mut holders, mut seen) = (BTreeSet::new(), 0);
    for adapter in ["start", "run", "boot", "daemon"] {
        for (module, text) in modules(&crates().join(adapter).join("src")) {
            let mut is_struct = false;
            for line in text.lines() {
                is_struct = (is_struct && !line.starts_with('}'))
                    || line.contains("struct ") && line.trim_end().ends_with('{');
                let field = line.split_once(": ").filter(|_| is_struct);
                let Some((_, kind)) = field else { continue };
                seen += 1;
                let words: Vec<&str> = kind.split(|c: char| !c.is_alphanumeric()).collect();
                if HELD.iter().any(|held| words.contains(held)) {
                    holders.insert(format!("{adapter}::{}", module.join("::")));
                }
            }
        }
    }
    assert!(seen > 200, "only {seen} fields were found");
    let holders: Vec<String> = holders.into_iter().collect();
    assert_eq!(holders, [&OTHERS[..], &["start::start"]].concat());
}

/// The Rust files below a directory, without those that a build has made.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs");
    paths
        .filter(|path| !path.ends_with("target"))
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => Some(path).filter(is_source).into_iter().collect(),
        })
        .collect()
}

/// As rustfmt.toml says, which rustfmt does not hold comments to.
const WIDTH: usize = 110;

#[test]
fn comments_are_as_narrow_as_code() {
    let mut seen = 0;
    let root = crates().join("..");
    for top in ["crates", "lab", "tests", "fuzz"] {
        for path in sources(&root.join(top)) {
            for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
                let is_comment = line.trim_start().starts_with("//");
                // An address is not broken.
                let fits = line.chars().count() <= WIDTH || line.contains("://");
                assert!(!is_comment || fits, "{}:{}: {line}", path.display(), at + 1);
                seen += usize::from(is_comment);
            }
        }
    }
    assert!(seen > 5000, "only {seen} comments were found");
}

#[test]
fn pages_are_short() {
    let root = crates().join("..");
    let words = |text: &str| {
        text.split_whitespace()
            .filter(|word| word.contains(char::is_alphanumeric))
            .count()
    };
    for (page, most) in MOST_WORDS {
        let has = words(&fs::read_to_string(root.join(page)).unwrap());
        assert!(has <= most, "{page} has {has} words, {most} at most");
    }
    let mut seen = 0;
    for entry in fs::read_dir(root.join("docs/decisions")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let parts: Vec<&str> = text.split("\n## ").skip(1).collect();
        let titles: Vec<&str> = parts.iter().map(|part| part.lines().next().unwrap()).collect();
        let expected = ["Context", "Decision", "Consequences", "History and figures"];
        assert!(
            titles.len() >= 3 && expected.starts_with(&titles),
            "{}: {titles:?}",
            path.display()
        );
        let has = parts[..3].iter().map(|part| words(part) - 1).sum::<usize>();
        assert!(
            has <= MOST_WORDS_OF_A_DECISION,
            "{}: {has} words before its history, {MOST_WORDS_OF_A_DECISION} at most",
            path.display()
        );
        seen += 1;
    }
    assert!(seen > 20, "only {seen} decisions were found");
}

#[test]
fn a_crate_uses_only_crates_below_it() {
    let mut seen = 0;
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for used in uses(&name) {
            assert!(
                floor(&used) < floor(&name),
                "{name} uses {used}, which is not below it"
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} dependencies were found");
}

#[test]
fn pure_crates_use_pure_crates_alone() {
    for name in PURE {
        assert_eq!(uses(name), BTreeSet::from(["model".to_owned()]), "{name}");
    }
    let pure: BTreeSet<String> = PURE.iter().chain(&["model"]).map(|&name| name.into()).collect();
    assert!(uses("inspect").is_subset(&pure), "{:?}", uses("inspect"));
}

/// The crates of this project that a crate uses, by its manifest.
fn uses(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let used = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let used = used.split("\n[").next().unwrap();
    let lines = used.lines().filter_map(|line| line.strip_prefix("headstart-"));
    lines
        .map(|used| used.split(['.', ' ', '=']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn what_runs_at_a_boot_moves_no_file() {
    // All of the program is one library's.
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    let code = fs::read_to_string(program).unwrap();
    let names: BTreeSet<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("headstart_"))
        .collect();
    assert_eq!(names, BTreeSet::from(["headstart_start_commands"]));
    let (mut linked, mut left) = (BTreeSet::new(), vec!["start-commands".to_owned()]);
    while let Some(name) = left.pop() {
        left.extend(uses(&name).into_iter().filter(|used| linked.insert(used.clone())));
    }
    for name in NOT_AT_BOOT {
        assert!(!linked.contains(name), "headstart links {name}");
    }
    assert!(linked.contains("boot") && linked.contains("system"), "{linked:?}");
}

/// The source files below a directory, tests left out, by module path.
fn modules(source: &Path) -> BTreeMap<Vec<String>, String> {
    let mut modules = BTreeMap::new();
    let mut directories = vec![source.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let relative = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Vec<String> = relative
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            let is_test = module
                .iter()
                .any(|part| part.ends_with("tests") || part == "testing");
            if path.extension().is_none_or(|e| e != "rs") || is_test {
                continue;
            }
            if matches!(module.last().unwrap().as_str(), "mod" | "lib" | "main") {
                module.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code: Vec<&str> = text
                .lines()
                .map(|line| line.split("//").next().unwrap())
                .collect();
            modules.insert(module, code.join("\n"));
        }
    }
    modules
}

/// The paths of `use crate::…`, `use super::…` and the like, and of names written in full; braces are taken
/// apart.
fn named(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut base = match start {
                "crate::" => Vec::new(),
                _ => module[..module.len().saturating_sub(1)].to_vec(),
            };
            let mut rest = &code[at + start.len()..];
            while let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            }
            expand(&base, rest, &mut paths);
        }
    }
    paths
}

/// The names that a crate's root has of its modules' (`pub use module::Name`), each with where it is.
fn through_root(modules: &BTreeMap<Vec<String>, String>) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    let root = modules.get(&Vec::new()).map_or("", String::as_str);
    for line in root.split(';') {
        let Some((_, path)) = line
            .split_once("use ")
            .filter(|(before, _)| !before.contains("mod "))
        else {
            continue;
        };
        let mut paths = Vec::new();
        expand(&[], path.trim_start().trim_start_matches("crate::"), &mut paths);
        for path in paths.into_iter().filter(|path| path.len() > 1) {
            if modules.contains_key(&path[..1]) {
                names.insert(path[path.len() - 1].clone(), path);
            }
        }
    }
    names.retain(|name, _| !modules.contains_key(std::slice::from_ref(name)));
    names
}

fn expand(base: &[String], rest: &str, paths: &mut Vec<Vec<String>>) {
    let length = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let (word, after) = rest.split_at(length);
    let mut path = base.to_vec();
    if !word.is_empty() {
        path.push(word.to_owned());
    }
    if let Some(inner) = after.strip_prefix("::") {
        return expand(&path, inner, paths);
    }
    if let (true, Some(list)) = (word.is_empty(), after.strip_prefix('{')) {
        let (mut depth, mut from) = (0, 0);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    expand(&path, list[from..at].trim_start(), paths);
                    from = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
    paths.push(path);
}

#[test]
fn no_modules_import_one_another_in_a_circle() {
    let mut sources: Vec<PathBuf> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    sources.push(crates().parent().unwrap().join("lab/src"));
    let (mut arrows, mut circles) = (0, Vec::new());
    for source in sources {
        let modules = modules(&source);
        let through_root = through_root(&modules);
        let mut above: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
        for (module, code) in &modules {
            let used = named(module, code).into_iter().filter_map(|path| {
                let path = match path.first().and_then(|first| through_root.get(first)) {
                    Some(behind) => behind,
                    None => &path,
                };
                let lengths = (1..=path.len()).rev();
                lengths
                    .map(|n| path[..n].to_vec())
                    .find(|part| modules.contains_key(part))
            });
            let used: BTreeSet<Vec<String>> = used.filter(|used| used != module).collect();
            arrows += used.len();
            above.insert(module, used);
        }
        // What imports nothing that is left goes, until nothing goes any more: what stays goes in a circle,
        // or leads to one.
        loop {
            let left: BTreeSet<Vec<String>> = above.keys().map(|module| (*module).clone()).collect();
            let before = above.len();
            above.retain(|_, used| used.iter().any(|one| left.contains(one)));
            if above.len() == before {
                break;
            }
        }
        let circle: Vec<String> = above.keys().map(|module| module.join("::")).collect();
        if !circle.is_empty() {
            circles.push(format!("{}: {circle:?}", source.display()));
        }
    }
    assert!(
        circles.is_empty(),
        "in a circle, or above one:\n{}",
        circles.join("\n")
    );
    assert!(arrows > 200, "only {arrows} imports were found");
}

//! docs/guide/README.md: every command in it runs, in its order, in a container of Debian that is booted anew
//! where the guide says so, and prints what stands below it. Numbers, their units and bars are compared by
//! form only, `…` stands for the rest of a word and `[…]` for any words. In a run of all tests only: it wants
//! the package that `make deb` makes.

use anyhow::{Context, Result, bail, ensure};
use headstart_acceptance::boots::Boots;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use std::fs;
use std::path::{Path, PathBuf};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// What ends the commands of one boot.
const REBOOT: &str = "reboot";

/// Runs the commands of this boot, the next of those in /root/guide that has not been run, once the boot
/// itself has been learned.
const UNIT: &str = r#"[Unit]
After=multi-user.target systemd-logind.service
[Service]
ExecStart=/bin/sh -c "flock /run/headstart/boot.lock true; sh /root/guide/next; echo headstart has served this boot >/dev/console"
"#;

/// The guide is of machines, and the test in a container: there the daemon is left out, unless it is told not
/// to be.
const DROP_IN: &str = "[Unit]\nConditionVirtualization=\n";

/// A command of the guide, and the words below it.
#[derive(Debug, PartialEq)]
struct Command {
    line: String,
    says: Vec<String>,
}

/// The commands of a text: the lines of its blocks that begin with `# `.
fn commands(text: &str) -> Result<Vec<Command>> {
    let mut commands: Vec<Command> = Vec::new();
    let mut blocks = text.split("\n```");
    blocks.next();
    // Every other piece is a block; its first line is what stands behind the fence.
    for (number, block) in blocks.step_by(2).enumerate() {
        let (fence, block) = block.split_once('\n').unwrap_or((block, ""));
        ensure!(fence.is_empty(), "block {number} has a language: {fence}");
        ensure!(
            block.starts_with("# "),
            "block {number} does not begin with a command: {block}"
        );
        for line in block.lines() {
            match (line.strip_prefix("# "), commands.last_mut()) {
                (Some(line), _) => commands.push(Command {
                    // What follows is a remark.
                    line: line.split("  # ").next().unwrap_or(line).trim_end().into(),
                    says: Vec::new(),
                }),
                (None, Some(last)) => last.says.extend(line.split_whitespace().map(String::from)),
                (None, None) => bail!("there is no command before {line}"),
            }
        }
    }
    Ok(commands)
}

/// Whether words are of the form of others, among which `[…]` stands for any.
fn alike(wanted: &[String], said: &[String]) -> bool {
    match wanted.split_first() {
        None => said.is_empty(),
        Some((any, rest)) if any == "[…]" => (0..=said.len()).any(|skipped| alike(rest, &said[skipped..])),
        Some((word, rest)) => said.split_first().is_some_and(|(first, after)| {
            let same = match word.split_once('…') {
                Some((begin, end)) => first.starts_with(begin) && first.ends_with(end),
                None => word == first,
            };
            same && alike(rest, after)
        }),
    }
}

/// Words by their form: a number is `0` whatever it is, its unit `unit`, and a bar the lowest.
fn form(words: &[String]) -> Vec<String> {
    const UNITS: [&str; 13] = [
        "ns", "µs", "ms", "s", "min", "h", "d", "bytes", "KiB", "MiB", "GiB", "kB", "MB",
    ];
    let mut formed: Vec<String> = Vec::new();
    for word in words {
        let mut plain = String::new();
        let mut within = false;
        for letter in word.chars() {
            let number = letter.is_ascii_digit() || within && letter == '.' || ('▁'..='█').contains(&letter);
            match (number, within) {
                (true, false) => plain.push('0'),
                (true, true) => {}
                // The point was a sentence's.
                (false, _) => plain.push(letter),
            }
            within = number;
        }
        if word.ends_with('.') && plain.ends_with('0') {
            plain.push('.');
        }
        let bare = plain.trim_end_matches([',', ';', '.', ':', ')']);
        if UNITS.contains(&bare) && formed.last().is_some_and(|last| last.ends_with('0')) {
            plain = plain.replace(bare, "unit");
        }
        formed.push(plain);
    }
    formed
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

/// The package that was made last.
fn package() -> Result<PathBuf> {
    let directory = Path::new(TOP).join("target/deb");
    let entries = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let machine = if cfg!(target_arch = "x86_64") {
        "_amd64.deb"
    } else {
        "_arm64.deb"
    };
    let mut files: Vec<_> = entries
        .filter(|path| path.to_string_lossy().ends_with(machine))
        .collect();
    files.sort();
    files
        .pop()
        .with_context(|| format!("there is no package in {}: make deb", directory.display()))
}

#[test]
#[ignore = "make test-all runs it"]
fn every_command_of_the_guide_prints_what_stands_below_it() -> Result<()> {
    let guide = fs::read_to_string(Path::new(TOP).join("docs/guide/README.md"))?;
    ensure!(guide.lines().count() <= 200, "the guide is longer than a page");
    let commands = commands(&guide)?;
    ensure!(!commands.is_empty(), "the guide has no commands");
    let registry = Registry::open(&paths::base()?)?;
    let cut = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::bare(cut, "flash4ms", &registry)?;
    boots.install(&[
        "mkdir -p {root}/root/target/deb",
        &format!("cp {} {{root}}/root/target/deb/", package()?.display()),
        "mkdir {root}/root/guide",
    ])?;
    boots.at_end("guide", UNIT)?;
    let directory = tempfile::tempdir()?;
    let drop_in = directory.path().join("drop-in");
    fs::write(&drop_in, DROP_IN)?;
    for unit in ["headstartd.service", "headstartd.socket"] {
        let drop_ins = format!("{{root}}/etc/systemd/system/{unit}.d");
        boots.install(&[
            &format!("mkdir {drop_ins}"),
            &format!("cp {} {drop_ins}/here.conf", drop_in.display()),
        ])?;
    }
    let mut wrong = String::new();
    for (number, boot) in commands.split(|command| command.line == REBOOT).enumerate() {
        let mut script = String::from("exec </dev/null; export LC_ALL=C.UTF-8\n");
        for (at, command) in boot.iter().enumerate() {
            let says = format!("/root/guide/{number}.{at}");
            script += &format!(
                "cd /root; {{ {}\n}} >{says} 2>&1; echo $? >{says}.status\n",
                command.line
            );
        }
        let file = directory.path().join("script");
        fs::write(&file, script)?;
        boots.install(&[&format!("cp {} {{root}}/root/guide/next", file.display())])?;
        boots
            .boot()
            .with_context(|| format!("boot {number} of the guide"))?;
        let copy = directory.path().join(number.to_string());
        boots.copy_out("/root/guide", &copy)?;
        for (at, command) in boot.iter().enumerate() {
            let said = fs::read_to_string(copy.join(format!("{number}.{at}")))?;
            let status = fs::read_to_string(copy.join(format!("{number}.{at}.status")))?;
            if status.trim() != "0" || !alike(&form(&command.says), &form(&words(&said))) {
                wrong += &format!(
                    "boot {number}: `{}` ended with {} and said:\n{said}\n",
                    command.line,
                    status.trim()
                );
            }
        }
    }
    ensure!(wrong.is_empty(), "the guide says otherwise:\n{wrong}");
    Ok(())
}

#[test]
fn commands_are_found_with_what_they_say() -> Result<()> {
    let text = "text\n```\n# one  # a remark\n1 word\n# reboot\n```\n# a heading\n```\n# two\n```\n";
    let parsed = commands(text)?;
    let lines: Vec<&str> = parsed.iter().map(|command| command.line.as_str()).collect();
    assert_eq!(lines, ["one", "reboot", "two"]);
    assert_eq!(parsed[0].says, words("1 word"));
    assert!(commands("\n```\nno command\n```\n").is_err());
    assert!(commands("\n```sh\n# one\n```\n").is_err());
    Ok(())
}

#[test]
fn words_are_compared_by_form_and_not_beyond() {
    let same = |wanted: &str, said: &str| alike(&form(&words(wanted)), &form(&words(said)));
    assert!(same("took 1.38 s, 12 %", "took 420 ms, 3 %"));
    assert!(same("in 12 MiB.", "in 3.4\n GiB."));
    assert!(same("▁▅█ of 3.", "▂▂▂▂ of 25."));
    assert!(same("a […] b", "a x y b"));
    assert!(same("/dev/… is there", "/dev/sda is there"));
    assert!(!same("took 1.38 s", "took 12 %"));
    assert!(!same("one start", "two starts"));
    assert!(!same("a b", "a b c"));
    assert!(!same("a […]", "b"));
}

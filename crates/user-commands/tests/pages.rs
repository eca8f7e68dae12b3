//! What the pages show of the command line exists: no page has a subcommand or an option that is gone.

#![allow(clippy::unwrap_used)]

use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

/// What a sentence may leave out, where it names a subcommand.
const LEFT_OUT: [ErrorKind; 4] = [
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
];

/// The README, the guide, and the page about charts, with their names.
fn pages() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_dir(top.join("docs/guide")).unwrap();
    let guide = guide.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = ["README.md", "docs/charts.md"].map(|name| top.join(name)).into();
    paths.extend(guide.filter(|path| path.extension().is_some_and(|is| is == "md")));
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The command lines in blocks of a page, and those within its sentences.
fn command_lines(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut shown, mut text, mut is_fenced) = (Vec::new(), String::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            let line = line.trim_start();
            shown.extend(line.strip_prefix("# ").or(Some(line)).map(String::from));
        } else {
            text += line;
            text.push(' ');
        }
    }
    let spans = text.split('`').skip(1).step_by(2).map(String::from);
    let is_ours = |line: &String| line.starts_with("headstart ");
    shown.retain(is_ours);
    (shown, spans.filter(is_ours).collect())
}

/// The words of a command line up to a remark, a redirection or another command.
fn words(line: &str) -> Vec<&str> {
    let is_end = |word: &&str| word.starts_with(['#', '>', '|', ';', '&', '…']);
    line.split_whitespace().take_while(|word| !is_end(word)).collect()
}

/// How the command line is refused, `None` if it is taken. The parser of `run` and `record` takes an option
/// that it does not know for their command, so options before `--` are looked up here, too.
fn refused(line: &str) -> Option<ErrorKind> {
    let words = words(line);
    let mut definition = headstart_user_commands::definition();
    definition.build();
    let mut command = &definition;
    for word in words[1..].iter().take_while(|word| **word != "--") {
        // Of another program (`fleet`, which has this test too) the options are not known here.
        let known = !command.is_disable_help_flag_set();
        if let Some(long) = word.strip_prefix("--").filter(|_| known) {
            let long = long.split('=').next();
            if !command.get_arguments().any(|known| known.get_long() == long) {
                return Some(ErrorKind::UnknownArgument);
            }
        }
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let parsed = definition.try_get_matches_from(words);
    parsed.err().map(|error| error.kind())
}

#[test]
fn every_command_line_of_the_pages_is_one() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (name, page) in pages() {
        let (shown, spans) = command_lines(&page);
        seen += shown.len() + spans.len();
        for line in shown {
            // The lines that the demo prints have figures in the place of a subcommand.
            let is_figure = words(&line)[1].starts_with(|c: char| c.is_ascii_digit());
            wrong.extend(
                refused(&line)
                    .filter(|_| !is_figure)
                    .map(|why| format!("{name}: {line}: {why:?}")),
            );
        }
        // COMMAND stands for any.
        for line in spans.iter().filter(|line| !line.contains("COMMAND")) {
            let why = refused(line).filter(|why| !LEFT_OUT.contains(why));
            wrong.extend(why.map(|why| format!("{name}: {line}: {why:?}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 80, "only {seen} command lines were found");
}

#[test]
fn every_subcommand_is_in_the_guide() {
    let pages = pages();
    let definition = headstart_user_commands::definition();
    let shown = definition.get_subcommands().filter(|sub| !sub.is_hide_set());
    for name in shown.map(clap::Command::get_name) {
        let called = format!("headstart {name}");
        assert!(
            pages.iter().any(|(_, page)| page.contains(&called)),
            "no page shows {called}"
        );
    }
}

#[test]
fn what_is_gone_is_refused() {
    assert_eq!(refused("headstart run --wait -- true >/dev/null"), None);
    for subcommand in ["run", "record -o t.trace", "chart", "boot enable"] {
        let line = format!("headstart {subcommand} --no-such-option -- true");
        assert_eq!(refused(&line), Some(ErrorKind::UnknownArgument), "{line}");
    }
    assert_eq!(
        refused("headstart no-such-command"),
        Some(ErrorKind::InvalidSubcommand)
    );
    let page = "`headstart floor\nKEY`\n```\n# headstart doctor\nheadstart: told\n```\n";
    let lines = ["headstart doctor", "headstart floor KEY"].map(|line| vec![line.to_owned()]);
    assert_eq!(command_lines(page), lines.into());
}

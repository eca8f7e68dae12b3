//! Whose start it is: the key that a command line stands for.
//!
//! A program is its executable, as its real path. For an interpreter that says little: there the script, module, jar or
//! the text of the one-liner belongs to the key. A program that only starts another one has the other's key.
//!
//! [`of_command`] makes the key of a command before it is started, [`of_exec`] that of what the kernel has started. Both give the
//! same key for the same command: the kernel turns a script into its interpreter's command, so `of_command` does as the kernel does.

mod interpreters;
mod launchers;
mod names;
#[cfg(test)]
mod tests;

pub use names::Names;

use anyhow::{Context, Result, bail};
use headstart_model::Key;
use headstart_store::{KeyDir, Store};
use interpreters::{Interpreter, Meaning};
use launchers::Launcher;
use names::Here;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One-liners up to this many bytes stand in the key as they are, longer ones by their hash.
const SHORT: usize = 200;

/// Executables that are many programs, told apart by the name they are called by or by their first argument.
const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

/// So many launchers and scripts may stand before a program: the kernel follows five scripts, and nobody needs more of the others.
const MOST_STEPS: usize = 8;

/// The key of a command that is about to be started.
pub fn of_command(command: &[OsString]) -> Result<Key> {
    Key::new(derive(command)).context("cannot make a key of the command; give one with --name")
}

/// The key of what the kernel has started: the file that was executed, by its real path, of a script its interpreter's; and the
/// arguments, the name it was called by first. `None` where that is no start of a program: a one-liner, a launcher, whose command
/// has a key of its own when it is started in turn, or one of a browser's own processes.
pub fn of_exec(executable: &Path, argv: &[OsString], names: &dyn Names) -> Option<Key> {
    let (called, arguments) = match argv.split_first() {
        Some((called, arguments)) => (base_name(called), arguments),
        None => (base_name(executable.as_os_str()), argv),
    };
    if launchers::is_part(arguments) {
        return None;
    }
    match whose(executable, &called, arguments, names)? {
        Whose::Program(key) => Key::new(key).ok(),
        Whose::Code(_) | Whose::Launched(_) | Whose::Launcher => None,
    }
}

/// What is kept of the key that a user means: by its name, or the path of its program; or of one user's starts of that, where no other's are known.
pub fn known(text: &str, store: &Store) -> Result<KeyDir> {
    let candidates = candidates(text);
    let mut by_name = candidates.iter().map(|key| store.key(key));
    if let Some(kept) = by_name.find(KeyDir::exists) {
        return Ok(kept);
    }
    let mut theirs = store.keys()?;
    theirs.retain(|key| candidates.iter().any(|one| one.as_str() == key.of_all()));
    match &theirs[..] {
        [] => bail!("the key {text:?} is not known: `headstart status` lists those that are"),
        [key] => Ok(store.key(key)),
        _ => bail!("several users start {text:?}: name one of the keys that `headstart status` lists"),
    }
}

/// The keys that a user may mean by a text, likeliest first.
pub fn candidates(text: &str) -> Vec<Key> {
    let words = [OsString::from(text)];
    let file = find(&words[0]).to_string_lossy().into_owned();
    let mut keys: Vec<Key> = [text.to_string(), derive(&words), file]
        .into_iter()
        .filter_map(|t| Key::new(t).ok())
        .collect();
    keys.dedup();
    keys
}

fn derive(command: &[OsString]) -> String {
    let mut command = command.to_vec();
    for _ in 0..MOST_STEPS {
        let Some((program, arguments)) = command.split_first() else {
            return String::new();
        };
        let executable = find(program);
        let shown = text(executable.as_os_str());
        // What a launcher starts is looked at, whatever the launcher is written in.
        if Launcher::named(&base_name(executable.as_os_str())).is_none() {
            if let Some(interpreter) = names::interpreter(&executable) {
                let script = found(program, &executable);
                let arguments = arguments.iter().cloned();
                command = interpreter.into_iter().chain([script]).chain(arguments).collect();
                continue;
            }
        }
        let rest = match whose(&executable, &base_name(program), arguments, &Here) {
            Some(Whose::Program(key) | Whose::Code(key)) => return key,
            Some(Whose::Launched(rest)) => rest,
            Some(Whose::Launcher) | None => return shown,
        };
        if rest.is_empty() {
            return shown;
        }
        command = rest;
    }
    command.first().map(|program| text(program)).unwrap_or_default()
}

/// What a program and its arguments stand for.
enum Whose {
    /// This key.
    Program(String),
    /// A one-liner: its text is part of this key, and it is nobody's but who writes it.
    Code(String),
    /// The program only starts this command; empty if it starts none.
    Launched(Vec<OsString>),
    /// The program only starts another, which is not to be seen in its arguments.
    Launcher,
}

/// `None` where it depends on a file that cannot be told.
fn whose(executable: &Path, called: &str, arguments: &[OsString], names: &dyn Names) -> Option<Whose> {
    let shown = text(executable.as_os_str());
    let base = base_name(executable.as_os_str());
    if let Some(launcher) = Launcher::named(&base) {
        return Some(match launcher.command(arguments) {
            Some(rest) => Whose::Launched(rest),
            None => Whose::Launcher,
        });
    }
    // snap(1) is whatever its link is called.
    if base == "snap" && called != base {
        return Some(Whose::Program(format!(
            "{shown} run {}",
            text(OsStr::new(called))
        )));
    }
    if !MULTI_CALL.contains(&base.as_str()) {
        return join(shown, Interpreter::named(&base), arguments, names);
    }
    let (applet, rest) = match arguments.split_first() {
        Some((first, rest)) if called == base => (first.to_string_lossy().into_owned(), rest),
        _ => (called.to_string(), arguments),
    };
    let program = format!("{shown} {}", text(OsStr::new(&applet)));
    join(program, Interpreter::named(&applet), rest, names)
}

/// The program, and what it interprets.
fn join(
    program: String,
    interpreter: Option<&Interpreter>,
    arguments: &[OsString],
    names: &dyn Names,
) -> Option<Whose> {
    let Some(interpreter) = interpreter else {
        return Some(Whose::Program(program));
    };
    let real = |path: &OsStr| Some(text(names.real(Path::new(path))?.as_os_str()));
    Some(Whose::Program(match interpreter.meaning(arguments) {
        Meaning::Nothing => program,
        Meaning::File(path, rest) => {
            let script = names.real(Path::new(path))?;
            let base = base_name(script.as_os_str());
            // A launcher that is a script.
            if let Some(launcher) = Launcher::named(&base) {
                return Some(launcher.command(rest).map_or(Whose::Launcher, Whose::Launched));
            }
            let part = interpreters::part_of(&base, rest);
            let program = format!("{program} {}{part}", text(script.as_os_str()));
            // A version manager's, which is what it is called: of an interpreter it says as little.
            let is_shim = script
                .parent()
                .is_some_and(|directory| directory.ends_with("shims"));
            match Interpreter::named(&base).filter(|_| is_shim) {
                Some(interpreter) => return join(program, Some(interpreter), rest, names),
                None => program,
            }
        }
        Meaning::FileOf(option, path) => format!("{program} {option} {}", real(path)?),
        Meaning::Name(name) => format!("{program} {}", text(name)),
        Meaning::NameOf(option, name) => {
            let here = interpreter
                .modules_here(name)
                .iter()
                .any(|path| names.is_there(path));
            let directory = here.then(|| real(OsStr::new("."))).flatten();
            let directory = directory.map(|directory| format!(" in {directory}"));
            format!(
                "{program} {option} {}{}",
                text(name),
                directory.unwrap_or_default()
            )
        }
        Meaning::Code(option, code) => {
            return Some(Whose::Code(format!("{program} {option} {}", code_text(code))));
        }
    }))
}

/// A one-liner as it is, or its hash if it is long or has line breaks.
fn code_text(code: &OsStr) -> String {
    match code.to_str() {
        Some(short) if short.len() <= SHORT && !short.chars().any(char::is_control) => short.into(),
        _ => {
            let hash = Sha256::digest(code.as_bytes());
            let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("sha256:{digits}")
        }
    }
}

/// The executable that execvp(3) would run, by its real path; the name itself if there is none.
fn find(program: &OsStr) -> PathBuf {
    if program.as_bytes().contains(&b'/') {
        return names::real(Path::new(program));
    }
    in_path(program).map_or_else(|| PathBuf::from(program), |found| names::real(&found))
}

/// What execvp(3) finds in the directories of `PATH`.
fn in_path(program: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| {
            candidate.is_file() && rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
        })
}

/// A script as execvp(3) hands it to its interpreter: as it was found, links and all.
fn found(program: &OsStr, executable: &Path) -> OsString {
    match program.as_bytes().contains(&b'/') {
        true => program.to_owned(),
        false => in_path(program).unwrap_or_else(|| executable.to_owned()).into(),
    }
}

fn base_name(path: &OsStr) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Text for a key: no control characters, no invalid UTF-8.
fn text(part: &OsStr) -> String {
    headstart_model::human::printable(&part.to_string_lossy())
}

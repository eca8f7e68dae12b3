//! Whose start it is: the key that a command line stands for.
//!
//! A program is its executable, as its real path. For an interpreter that says little: there the script,
//! module, jar or the text of the one-liner belongs to the key. A program that only starts another one has
//! the other's key.
//!
//! [`of_command`] makes the key of a command before it is started, [`of_exec`] that of what the kernel has
//! started. Both give the same key for the same command: the kernel turns a script into its interpreter's
//! command, so `of_command` does as the kernel does.

mod containers;
mod interpreters;
mod launchers;
pub mod local;
mod names;
mod registered;
#[cfg(test)]
mod tests;
mod unknown_launchers;

pub use containers::{is_container, is_runtime};
pub use names::{LocalNames, Names};
pub use registered::is_registered;
pub use unknown_launchers::{as_launcher, turned_out};

use anyhow::{Context, Result, bail};
use headstart_model::Key;
use headstart_model::key::{BOOTS, KeyError};
use headstart_store::{KeyDir, Store};
use headstart_system::mounts::MountTable;
use headstart_system::secrets::Secrets;
use interpreters::{Interpreter, Meaning};
use launchers::{Launched, Launcher};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One-liners up to this many bytes stand in the key as they are, longer ones by their hash.
const SHORT: usize = 200;

/// Executables that are many programs, told apart by the name they are called by or by their first argument.
const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

/// So many launchers and scripts may stand before a program: the kernel follows five scripts, and nobody
/// needs more of the others.
const MOST_STEPS: usize = 8;

/// The most bytes of arguments that a start takes along: what is beyond tells no launcher's command.
const MOST_REST: usize = 4096;

/// Whose start a command line is.
#[derive(Clone, Debug, PartialEq)]
pub struct StartKey {
    /// Its key.
    pub key: Key,
    /// The arguments that the key says nothing of. Should the program turn out to start what they name, they
    /// tell which start it is ([`as_launcher`]).
    pub rest: Vec<OsString>,
}

impl StartKey {
    fn new(key: String, mut rest: Vec<OsString>, names: &dyn Names) -> Result<StartKey, KeyError> {
        let bytes: usize = rest.iter().map(|argument| argument.len() + 1).sum();
        if bytes > MOST_REST {
            rest.clear();
        }
        // Another directory's `./job` is another job.
        let is_relative =
            |word: &[u8]| word.contains(&b'/') && !word.starts_with(b"/") && !word.starts_with(b"-");
        for word in rest.iter_mut().filter(|word| is_relative(word.as_bytes())) {
            if let Some(directory) = names.directory() {
                let whole: PathBuf = directory.join(&*word).components().collect();
                *word = whole.into();
            }
        }
        Ok(StartKey {
            key: Key::new(key)?,
            rest,
        })
    }
}

/// Whether a key, or an argument that it says nothing of, names what is to be kept nowhere
/// ([`headstart_system::secrets`]): such a start is bypassed, and nothing is written of it.
pub fn is_secret(key: &Key, rest: &[OsString]) -> bool {
    let here = std::env::current_dir().ok();
    // A word may lead to a server that does not answer, whom the command would not ask.
    let mounts = || MountTable::read().unwrap_or_default();
    let mut secrets = Secrets::new();
    let rest = rest.iter().map(|word| word.as_bytes());
    std::iter::once(key.as_str().as_bytes())
        .chain(rest)
        .any(|text| secrets.are_in(Some(&mounts), text, here.as_deref()))
}

/// The key of a command that is about to be started.
pub fn of_command(command: &[OsString]) -> Result<Key> {
    whose_command(command).map(|whose| whose.key)
}

/// Whose start a command is by the name that was given for it, or else by what it starts.
pub fn named_or_of(name: Option<&Key>, command: &[OsString], store: &Store) -> Result<StartKey> {
    match name {
        Some(key) if key.as_str() == BOOTS => bail!("{BOOTS:?} is the key of boots: give another --name"),
        Some(key) => Ok(StartKey {
            key: key.clone(),
            rest: Vec::new(),
        }),
        None => Ok(as_launcher(store, whose_command(command)?)),
    }
}

/// Whose start a command is that is about to be started.
fn whose_command(command: &[OsString]) -> Result<StartKey> {
    let (key, rest) = derive_whole(command);
    StartKey::new(key, rest, &LocalNames).context("cannot make a key of the command; give one with --name")
}

/// Whose start it is what the kernel has started: the file that was executed, by its real path, of a script
/// its interpreter's; and the arguments, the name it was called by first. `None` where that is no start of a
/// program: a one-liner, a launcher, whose command has a key of its own when it is started in turn, or one of
/// a browser's own processes.
pub fn of_exec(executable: &Path, argv: &[OsString], names: &dyn Names) -> Option<StartKey> {
    let (called, arguments) = match argv.split_first() {
        Some((called, arguments)) => (base_name(called), arguments),
        None => (base_name(executable.as_os_str()), argv),
    };
    if launchers::is_part(arguments) {
        return None;
    }
    match meant(executable, &called, arguments, names)? {
        Meant::Program(key, rest) => StartKey::new(key, rest, names).ok(),
        Meant::Code(_) | Meant::Launched(_) | Meant::Launcher => None,
    }
}

/// What is kept of the key that a user means: by its name, or the path of its program; or of one user's
/// starts of that, where no other's are known. Nothing of it may be the key's own, where something was
/// imported.
pub fn find_known(text: &str, store: &Store) -> Result<KeyDir> {
    let candidates = candidates(text);
    let mut by_name = candidates.iter().map(|key| store.key(key));
    if let Some(kept) = by_name.find(KeyDir::exists) {
        return Ok(kept);
    }
    let mut by_name = candidates.iter().map(|key| store.key(key));
    if let Some(kept) = by_name.find(|kept| kept.imported().is_some()) {
        return Ok(kept);
    }
    let mut theirs = store.keys()?;
    theirs.retain(|key| candidates.iter().any(|one| one.as_str() == key.of_all()));
    match &theirs[..] {
        [] => match like(text, &store.keys()?) {
            Some(one) => bail!(
                "the key {text:?} is not known; {:?} is: name it whole, in quotes",
                one.as_str()
            ),
            None => bail!("the key {text:?} is not known: `headstart status` lists those that are"),
        },
        [key] => Ok(store.key(key)),
        _ => bail!("several users start {text:?}: name one of the keys that `headstart status` lists"),
    }
}

/// The key, of these, that a user may have meant by the name of a program or script in it.
fn like<'a>(text: &str, keys: &'a [Key]) -> Option<&'a Key> {
    let is_named = |word: &str| word.rsplit('/').next() == Some(text);
    keys.iter().find(|key| key.as_str().split(' ').any(is_named))
}

/// What is said of the keys of other users' starts of the same when one is forgotten: a line each.
pub fn describe_others(kept: &KeyDir, store: &Store) -> Result<String> {
    let own = kept.key();
    let keys = store.keys()?.into_iter();
    let others = keys.filter(|key| key != own && key.of_all() == own.of_all());
    Ok(others
        .map(|key| format!("{key} is kept: name it to have it forgotten, too\n"))
        .collect())
}

/// The keys that a user may mean by a text, likeliest first.
pub fn candidates(text: &str) -> Vec<Key> {
    // As a session is printed, with its user's name.
    let session = text
        .split_once(" (")
        .filter(|(key, _)| key.starts_with("session of user "));
    let text = session.map_or(text, |(key, _)| key);
    let words = [OsString::from(text)];
    let file = self::text(find(&words[0]).as_os_str());
    let mut keys: Vec<Key> = [text.to_string(), derive(&words), file]
        .into_iter()
        .filter_map(|t| Key::new(t).ok())
        .collect();
    keys.dedup();
    keys
}

fn derive(command: &[OsString]) -> String {
    derive_whole(command).0
}

/// The key of a command, and the arguments that it says nothing of.
fn derive_whole(command: &[OsString]) -> (String, Vec<OsString>) {
    let mut command = command.to_vec();
    for _ in 0..MOST_STEPS {
        let Some((program, arguments)) = command.split_first() else {
            return (String::new(), Vec::new());
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
        let rest = match meant(&executable, &base_name(program), arguments, &LocalNames) {
            Some(Meant::Program(key, rest)) => return (key, rest),
            Some(Meant::Code(key)) => return (key, Vec::new()),
            Some(Meant::Launched(rest)) => rest,
            // Whatever it starts, it is told apart by all that it is given.
            Some(Meant::Launcher) | None if !arguments.is_empty() => {
                return (unknown_launchers::with_text(&shown, arguments), Vec::new());
            }
            Some(Meant::Launcher) | None => return (shown, Vec::new()),
        };
        match rest.first() {
            None => return (shown, Vec::new()),
            // So it is where its options are not those that are known.
            Some(program) if !is_program(program) => {
                return (unknown_launchers::with_text(&shown, arguments), Vec::new());
            }
            Some(_) => command = rest,
        }
    }
    let program = command.first().map(|program| text(program));
    (program.unwrap_or_default(), Vec::new())
}

/// Whether execvp(3) would find it.
fn is_program(program: &OsStr) -> bool {
    match program.as_bytes().contains(&b'/') {
        true => Path::new(program).is_file(),
        false => in_path(program).is_some(),
    }
}

/// What a program and its arguments stand for.
enum Meant {
    /// This key, and the arguments that it says nothing of.
    Program(String, Vec<OsString>),
    /// A one-liner: its text is part of this key, and it is nobody's but who writes it.
    Code(String),
    /// The program only starts this command; empty if it starts none.
    Launched(Vec<OsString>),
    /// The program only starts another, which is not to be seen in its arguments.
    Launcher,
}

/// `None` where it depends on a file that cannot be told.
fn meant(executable: &Path, called: &str, arguments: &[OsString], names: &dyn Names) -> Option<Meant> {
    let mut at = (executable.to_owned(), called.to_owned(), arguments.to_vec());
    for _ in 0..MOST_STEPS {
        let (executable, called, arguments) = &at;
        let shown = text(executable.as_os_str());
        let Some(launcher) = Launcher::named(&base_name(executable.as_os_str())) else {
            return meant_plain(executable, called, arguments, names);
        };
        match launcher.found(called, arguments) {
            Launched::Command(rest) => return Some(Meant::Launched(rest)),
            Launched::Hidden => return Some(Meant::Launcher),
            Launched::Nothing if launcher.is_called(called) => {
                return Some(Meant::Program(shown, Vec::new()));
            }
            Launched::Nothing => {
                return Some(Meant::Program(
                    format!("{shown} {}", text(OsStr::new(called))),
                    Vec::new(),
                ));
            }
            Launched::Inside(rest) => {
                return Some(Meant::Program(containers::key(shown, &rest, names), Vec::new()));
            }
            // Of a container that is only named by chance nothing is known the next time.
            Launched::Bundle {
                directory,
                is_mounted,
            } => {
                let words = containers::of_bundle(Path::new(&directory), is_mounted, names)?;
                return Some(Meant::Program(containers::key(shown, &words, names), Vec::new()));
            }
            Launched::Loaded(rest) => {
                let (program, rest) = rest.split_first()?;
                at = (names.real(Path::new(program))?, base_name(program), rest.to_vec());
            }
        }
    }
    None
}

/// The same of what is no launcher.
fn meant_plain(executable: &Path, called: &str, arguments: &[OsString], names: &dyn Names) -> Option<Meant> {
    let shown = text(executable.as_os_str());
    let base = base_name(executable.as_os_str());
    // snap(1) is whatever its link is called.
    if base == "snap" && called != base {
        let key = format!("{shown} run {}", text(OsStr::new(called)));
        return Some(Meant::Program(key, Vec::new()));
    }
    if !MULTI_CALL.contains(&base.as_str()) {
        let interpreter = Interpreter::named(&base);
        // What the kernel starts for files of some format (binfmt_misc) is given the file first.
        let interpreter = interpreter.or_else(|| {
            let is_registered = !arguments.is_empty() && names.is_registered(executable);
            is_registered.then_some(&Interpreter::OF_REGISTERED)
        });
        return join(shown, interpreter, arguments, names);
    }
    let (applet, rest) = match arguments.split_first() {
        Some((first, rest)) if called == base => (text(first), rest),
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
) -> Option<Meant> {
    let Some(interpreter) = interpreter else {
        return Some(Meant::Program(program, arguments.to_vec()));
    };
    let real = |path: &OsStr| Some(text(names.real(Path::new(path))?.as_os_str()));
    let key = match interpreter.meaning(arguments) {
        Meaning::Nothing => program,
        Meaning::File(path, rest) => {
            let script = names.real(Path::new(path))?;
            let base = base_name(script.as_os_str());
            // A launcher that is a script.
            if let Some(launcher) = Launcher::named(&base) {
                match launcher.found(&base_name(path), rest) {
                    Launched::Command(rest) => return Some(Meant::Launched(rest)),
                    Launched::Hidden => return Some(Meant::Launcher),
                    Launched::Inside(rest) => {
                        let client = format!("{program} {}", text(script.as_os_str()));
                        return Some(Meant::Program(containers::key(client, &rest, names), Vec::new()));
                    }
                    Launched::Nothing | Launched::Loaded(_) | Launched::Bundle { .. } => {}
                }
            }
            let part = interpreters::part_of(&base, rest);
            let program = format!("{program} {}{part}", text(script.as_os_str()));
            // A version manager's, which is what it is called: of an interpreter it says as little.
            let is_shim = script
                .parent()
                .is_some_and(|directory| directory.ends_with("shims"));
            return match Interpreter::named(&base).filter(|_| is_shim) {
                Some(interpreter) => join(program, Some(interpreter), rest, names),
                None => Some(Meant::Program(program, rest.to_vec())),
            };
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
            return Some(Meant::Code(format!("{program} {option} {}", code_text(code))));
        }
    };
    Some(Meant::Program(key, Vec::new()))
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
    text(name)
}

/// Text for a key: no control characters, and of what is no UTF-8 each byte by its number, so that two such
/// names differ.
fn text(part: &OsStr) -> String {
    match part.to_str() {
        Some(part) => headstart_model::human::printable(part),
        None => part.as_encoded_bytes().escape_ascii().to_string(),
    }
}

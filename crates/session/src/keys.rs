//! Whose start it is: the key that a command line stands for.
//!
//! A program is its executable, as its real path. For an interpreter that says little: there the script, module, jar or
//! the text of the one-liner belongs to the key.

mod interpreters;

use anyhow::{Context, Result};
use headstart_model::Key;
use interpreters::{Interpreter, Meaning};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One-liners up to this many bytes stand in the key as they are, longer ones by their hash.
const SHORT: usize = 200;

/// Executables that are many programs, told apart by the name they are called by or by their first argument.
const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

/// The key of a command.
pub fn of_command(command: &[OsString]) -> Result<Key> {
    Key::new(derive(command)).context("cannot make a key of the command; give one with --name")
}

/// The keys that a user may mean by a text, likeliest first.
pub fn candidates(text: &str) -> Vec<Key> {
    let by_program = derive(&[OsString::from(text)]);
    let mut keys: Vec<Key> = [text.to_string(), by_program]
        .into_iter()
        .filter_map(|t| Key::new(t).ok())
        .collect();
    keys.dedup();
    keys
}

fn derive(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return String::new();
    };
    let executable = find(program);
    let shown = text(executable.as_os_str());
    let base = executable
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let called = Path::new(program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if base == "env" {
        if let Some(rest) = behind_env(arguments) {
            return derive(rest);
        }
    }
    if MULTI_CALL.contains(&base.as_str()) {
        let (applet, rest) = match arguments.split_first() {
            Some((first, rest)) if called == base => (first.to_string_lossy().into_owned(), rest),
            _ => (called, arguments),
        };
        return format!(
            "{shown} {}",
            join(text(OsStr::new(&applet)), Interpreter::named(&applet), rest)
        );
    }
    join(shown, Interpreter::named(&base), arguments)
}

/// The program, and what it interprets.
fn join(program: String, interpreter: Option<&Interpreter>, arguments: &[OsString]) -> String {
    let Some(interpreter) = interpreter else {
        return program;
    };
    match interpreter.meaning(arguments) {
        Meaning::Nothing => program,
        Meaning::File(path) => format!("{program} {}", text(real(Path::new(path)).as_os_str())),
        Meaning::FileOf(option, path) => {
            format!("{program} {option} {}", text(real(Path::new(path)).as_os_str()))
        }
        Meaning::Name(name) => format!("{program} {}", text(name)),
        Meaning::NameOf(option, name) => format!("{program} {option} {}", text(name)),
        Meaning::Code(option, code) => format!("{program} {option} {}", code_text(code)),
    }
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

/// The command that env(1) starts; `None` where its options are others than the common ones.
fn behind_env(arguments: &[OsString]) -> Option<&[OsString]> {
    let mut rest = arguments;
    loop {
        let (first, after) = rest.split_first()?;
        let first = first.to_string_lossy();
        rest = match first.as_ref() {
            "-i" | "-" | "-v" | "--ignore-environment" => after,
            "-u" | "-C" => after.get(1..)?,
            "--" => return Some(after).filter(|command| !command.is_empty()),
            option if option.starts_with('-') => return None,
            assignment if assignment.contains('=') => after,
            _ => return Some(rest),
        };
    }
}

/// The executable that execvp(3) would run, by its real path; the name itself if there is none.
fn find(program: &OsStr) -> PathBuf {
    if program.as_bytes().contains(&b'/') {
        return real(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| {
            candidate.is_file() && rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
        })
        .map_or_else(|| PathBuf::from(program), |found| real(&found))
}

/// The path with symbolic links resolved; made absolute if nothing is there.
fn real(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Text for a key: no control characters, no invalid UTF-8.
fn text(part: &OsStr) -> String {
    headstart_model::human::printable(&part.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[&str]) -> String {
        derive(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// An executable under a name of its own, so that the tests need no interpreter.
    fn with_programs(names: &[&str], test: impl FnOnce(&dyn Fn(&str) -> String)) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in names {
            std::fs::write(root.join(name), "").unwrap();
            std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        test(&|name| root.join(name).to_str().unwrap().to_string());
    }

    #[test]
    fn a_program_is_its_real_path() {
        with_programs(&["tool-1.2"], |at| {
            std::os::unix::fs::symlink(at("tool-1.2"), at("tool")).unwrap();
            assert_eq!(key(&[&at("tool"), "--option", "file"]), at("tool-1.2"));
        });
        assert_eq!(key(&["no-such-program-anywhere"]), "no-such-program-anywhere");
        assert!(key(&["sh"]).starts_with('/'), "found in PATH");
    }

    #[test]
    fn an_interpreter_is_what_it_interprets() {
        with_programs(
            &[
                "python3.11",
                "java",
                "perl",
                "dash",
                "node",
                "script.py",
                "app.jar",
            ],
            |at| {
                let (python, script) = (at("python3.11"), at("script.py"));
                for (words, expected) in [
                    (vec![&*python], python.clone()),
                    (
                        vec![&python, "-I", "-X", "dev", &script, "-m", "x"],
                        format!("{python} {script}"),
                    ),
                    (
                        vec![&python, "-m", "http.server", "80"],
                        format!("{python} -m http.server"),
                    ),
                    (vec![&python, "-mtimeit"], format!("{python} -m timeit")),
                    (vec![&python, "-c", "import os"], format!("{python} -c import os")),
                    (vec![&python, "--", &script], format!("{python} {script}")),
                    (
                        vec![&at("java"), "-Xmx1g", "-jar", &at("app.jar"), "x"],
                        format!("{} -jar {}", at("java"), at("app.jar")),
                    ),
                    (
                        vec![&at("java"), "-cp", "a:b", "org.Main", "x"],
                        format!("{} org.Main", at("java")),
                    ),
                    (
                        vec![&at("java"), "--module", "m/c"],
                        format!("{} --module m/c", at("java")),
                    ),
                    (
                        vec![&at("perl"), "-w", "-I", "lib", &script],
                        format!("{} {script}", at("perl")),
                    ),
                    (
                        vec![&at("perl"), "-lane", "print"],
                        format!("{} -e print", at("perl")),
                    ),
                    (
                        vec![&at("dash"), "-ec", "exit 7"],
                        format!("{} -c exit 7", at("dash")),
                    ),
                    (
                        vec![&at("dash"), "-o", "errexit", &script],
                        format!("{} {script}", at("dash")),
                    ),
                    (
                        vec![&at("node"), "-r", "x", &script],
                        format!("{} {script}", at("node")),
                    ),
                ] {
                    assert_eq!(key(&words), expected);
                }
            },
        );
    }

    #[test]
    fn long_one_liners_are_their_hash() {
        let sh = key(&["sh"]);
        let (a, b) = (key(&["sh", "-c", "a\nb"]), key(&["sh", "-c", "a\nc"]));
        assert!(a.starts_with(&format!("{sh} -c sha256:")) && a != b, "{a} {b}");
        assert!(Key::new(a).is_ok());
    }

    #[test]
    fn env_and_multi_call_programs_are_seen_through() {
        with_programs(&["env", "busybox", "tool", "script"], |at| {
            assert_eq!(
                key(&[&at("env"), "-i", "A=b", "-u", "X", &at("tool"), "x"]),
                at("tool")
            );
            assert_eq!(key(&[&at("env"), "-S", "x y"]), at("env"));
            assert_eq!(
                key(&[&at("busybox"), "sh", &at("script")]),
                format!("{} sh {}", at("busybox"), at("script"))
            );
            std::os::unix::fs::symlink(at("busybox"), at("ls")).unwrap();
            assert_eq!(key(&[&at("ls"), "-l"]), format!("{} ls", at("busybox")));
        });
    }
}

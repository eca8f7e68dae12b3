//! Programs that only start another one, whose start is meant, and processes that are only part of a program.

mod table;

pub use table::Launcher;

use super::names::{one_of, words};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use table::{LOADER, Named, Reading, Valued};

/// What a launcher starts.
#[derive(Debug, PartialEq)]
pub enum Launched {
    /// This command, empty if none.
    Command(Vec<OsString>),
    /// This program, in the place of the launcher.
    Loaded(Vec<OsString>),
    /// In a container of an image, which comes first, this command.
    Inside(Vec<OsString>),
    /// The container that the bundle in a directory describes.
    Bundle {
        directory: OsString,
        /// Whether its root is mounted.
        is_mounted: bool,
    },
    /// Nothing: it is a program like any other.
    Nothing,
    /// What cannot be seen.
    Hidden,
}

/// Whether an executable's name is one of the dynamic linker's: `ld-linux-x86-64.so.2`, `ld64.so.2`,
/// `ld-musl-x86_64.so.1`, `ld-2.31.so`, `ld.so`.
fn is_loader(base: &str) -> bool {
    let rest = base.strip_prefix("ld");
    rest.is_some_and(|rest| rest.starts_with(['-', '.', '6', '3']) && rest.contains(".so"))
}

impl Launcher {
    /// The launcher of an executable's name.
    pub fn named(base: &str) -> Option<&'static Launcher> {
        let known = table::ALL
            .iter()
            .find(|one| one_of(one.names, base.as_bytes()).is_some());
        known.or_else(|| is_loader(base).then_some(&LOADER))
    }

    /// Whether this is its own name, and no link's that leads to it.
    pub fn is_called(&self, called: &str) -> bool {
        one_of(self.names, called.as_bytes()).is_some() || self.reading == Reading::Loader
    }

    /// Whether it starts containers.
    pub fn starts_containers(&self) -> bool {
        matches!(
            self.reading,
            Reading::Container | Reading::Machine(_) | Reading::Bundle | Reading::Shim
        )
    }

    /// What it starts, called by this name.
    pub fn found(&self, called: &str, arguments: &[OsString]) -> Launched {
        match self.reading {
            Reading::Opaque => return Launched::Hidden,
            Reading::Shim => return in_shim(arguments),
            _ => {}
        }
        if self.reading == Reading::Env && one_of(self.names, b"env").is_some() {
            return behind_env(arguments).map_or(Launched::Hidden, Launched::Command);
        }
        let mut rest = arguments;
        // A compiler's name leads to ccache(1): nobody else is started by another name than the launcher's.
        if self.reading == Reading::Env && !self.is_called(called) {
            return Launched::Nothing;
        }
        if self.reading == Reading::Architecture && called == "setarch" {
            let is_option = rest
                .first()
                .is_some_and(|first| first.as_bytes().starts_with(b"-"));
            rest = rest.get(usize::from(!is_option)..).unwrap_or_default();
        }
        let before = rest;
        rest = self.behind_options(rest);
        if !self.subcommands.is_empty() {
            // As `docker container run`.
            let group = rest.first().is_some_and(|first| first.as_bytes() == b"container");
            rest = rest.get(usize::from(group)..).unwrap_or_default();
            match rest.split_first() {
                Some((word, after)) if one_of(self.subcommands, word.as_bytes()).is_some() => {
                    rest = self.behind_options(after)
                }
                _ => return Launched::Nothing,
            }
        }
        let given = before.strip_suffix(rest).unwrap_or(before);
        let is_number = |word: &OsString| word.as_bytes().iter().all(u8::is_ascii_digit);
        let is_assignment = |word: &OsString| word.as_bytes().contains(&b'=');
        let behind = |count: usize| rest.get(count..).unwrap_or_default().to_vec();
        match self.reading {
            Reading::Number => Launched::Command(behind(usize::from(rest.first().is_some_and(is_number)))),
            Reading::Env => {
                Launched::Command(behind(rest.iter().take_while(|word| is_assignment(word)).count()))
            }
            Reading::Lock => Launched::Command(match rest {
                [_, option, text] if one_of("-c --command", option.as_bytes()).is_some() => ["/bin/sh", "-c"]
                    .map(OsString::from)
                    .into_iter()
                    .chain([text.clone()])
                    .collect(),
                _ => behind(1),
            }),
            Reading::Loader if rest.is_empty() => Launched::Nothing,
            Reading::Loader => Launched::Loaded(behind(0)),
            Reading::Container if rest.is_empty() => Launched::Nothing,
            Reading::Container => {
                let mut words = behind(0);
                // It takes the place of the program that the image names, before the arguments.
                words.splice(1..1, self.value_of("--entrypoint", given));
                Launched::Inside(words)
            }
            Reading::Machine(named) => self.in_machine(&named, given, rest),
            Reading::Bundle => {
                let directory = self.value_of("-b --bundle", given);
                Launched::Bundle {
                    directory: directory.unwrap_or_else(|| ".".into()),
                    is_mounted: true,
                }
            }
            Reading::Plain | Reading::Architecture | Reading::Opaque | Reading::Shim => {
                Launched::Command(behind(self.before))
            }
        }
    }

    /// The container that `given`, what stands before the command, names, and the command in it.
    fn in_machine(&self, named: &Named, given: &[OsString], command: &[OsString]) -> Launched {
        // A path says that it is one: from a name no directory is looked for.
        let as_path = |path: OsString| match path.as_bytes().contains(&b'/') {
            true => path,
            false => Path::new(".").join(path).into(),
        };
        let by_option =
            (self.value_of(named.paths, given).map(as_path)).or_else(|| self.value_of(named.names, given));
        let (name, command) = match (by_option, command.split_first()) {
            (Some(name), _) => (name, command),
            (None, Some((name, command))) if named.by_argument => (name.clone(), command),
            (None, _) => return Launched::Hidden,
        };
        Launched::Inside([name].into_iter().chain(command.iter().cloned()).collect())
    }

    /// The value of the first of these options that is among the words.
    fn value_of(&self, options: &str, words: &[OsString]) -> Option<OsString> {
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            let bytes = word.as_bytes();
            let takes_next = bytes.starts_with(b"-") && self.takes_next(bytes);
            for option in options.split_ascii_whitespace().map(str::as_bytes) {
                let value = match option.starts_with(b"--") {
                    true => bytes
                        .strip_prefix(option)
                        .and_then(|value| value.strip_prefix(b"=")),
                    false => bytes.strip_prefix(option).filter(|value| !value.is_empty()),
                };
                // The last of letters that stand together.
                let is_last =
                    !option.starts_with(b"--") && !bytes.starts_with(b"--") && option.last() == bytes.last();
                if takes_next && (bytes == option || is_last) {
                    return after.first().cloned();
                }
                if let Some(value) = value {
                    return Some(OsString::from_vec(value.to_vec()));
                }
            }
            rest = after.get(usize::from(takes_next)..).unwrap_or_default();
        }
        None
    }

    fn behind_options<'a>(&self, arguments: &'a [OsString]) -> &'a [OsString] {
        let mut rest = arguments;
        while let Some((first, after)) = rest.split_first() {
            let bytes = first.as_bytes();
            if bytes == b"--" {
                return after;
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                break;
            }
            rest = after
                .get(usize::from(self.takes_next(bytes))..)
                .unwrap_or_default();
        }
        rest
    }

    /// Whether the next argument is the value of this one: of `--name`, or of the last of letters that stand
    /// together.
    fn takes_next(&self, option: &[u8]) -> bool {
        if option.starts_with(b"--") {
            return !option.contains(&b'=') && self.is_valued(option);
        }
        let letters = option.get(1..).unwrap_or_default();
        let first = letters.iter().position(|letter| self.is_valued(&[b'-', *letter]));
        first.is_some_and(|at| at + 1 == letters.len())
    }

    fn is_valued(&self, option: &[u8]) -> bool {
        match self.valued {
            Valued::These(options) => one_of(options, option).is_some(),
            Valued::AllBut(options) => one_of(options, option).is_none(),
        }
    }
}

/// The container that a shim of containerd's is executed for, in the directory of the bundle (`shim.go` of
/// containerd's core/runtime/v2). Other calls, such as `delete`, come after its start.
fn in_shim(arguments: &[OsString]) -> Launched {
    match arguments.last().is_some_and(|last| last == "start") {
        true => Launched::Bundle {
            directory: ".".into(),
            is_mounted: false,
        },
        false => Launched::Hidden,
    }
}

/// Options of env(1) for signals, whose value is in their word.
const SIGNALS: [&str; 3] = ["--block-signal", "--default-signal", "--ignore-signal"];

/// The command that env(1) starts; `None` where its options are others than the common ones.
fn behind_env(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut rest = arguments;
    loop {
        let Some((first, after)) = rest.split_first() else {
            return Some(Vec::new());
        };
        // -S as the kernel passes it on from a script's first line: the option and its value in one.
        if let Some(split) = first.as_bytes().strip_prefix(b"-S") {
            let (text, after) = match split {
                [] => (after.first()?.clone(), after.get(1..)?),
                _ => (OsString::from_vec(split.to_vec()), after),
            };
            let words: Vec<OsString> = words(&text)?.into_iter().chain(after.iter().cloned()).collect();
            // Once: what was split has no -S again.
            return match words
                .first()
                .is_some_and(|word| word.as_bytes().starts_with(b"-S"))
            {
                true => None,
                false => behind_env(&words),
            };
        }
        let text = first.to_string_lossy();
        let is_long = |name: &str| {
            let value = text.strip_prefix(name);
            value.is_some_and(|value| value.is_empty() || value.starts_with('='))
        };
        rest = match text.as_ref() {
            "-i" | "-" | "-v" | "--ignore-environment" | "--debug" => after,
            "-u" | "--unset" => after.get(1..)?,
            "--" => return Some(after.to_vec()),
            _ if SIGNALS.into_iter().any(is_long) || is_long("--unset") => after,
            unset if unset.starts_with("-u") => after,
            // Another working directory (-C) makes another program of `./program`.
            option if option.starts_with('-') => return None,
            assignment if assignment.contains('=') => after,
            _ => return Some(rest.to_vec()),
        };
    }
}

/// What browsers, and programs made of them, call the kinds of their own processes by: options of Chromium
/// and Firefox.
const PARTS: [&str; 7] = [
    "--type=renderer",
    "--type=zygote",
    "--type=gpu-process",
    "--type=utility",
    "--type=broker",
    "--type=crashpad-handler",
    "-contentproc",
];

/// Whether these are the arguments of a process that a running program has made of itself.
pub fn is_part(arguments: &[OsString]) -> bool {
    let is = |argument: &OsString| PARTS.iter().any(|part| part.as_bytes() == argument.as_bytes());
    arguments.iter().take(4).any(is)
}

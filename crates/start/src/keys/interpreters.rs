//! Interpreters, and how to find in their arguments what they interpret.

use super::names::one_of;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// How an interpreter's arguments are read. Names and options are words with spaces between them.
pub struct Interpreter {
    /// Names of its executable, without version.
    names: &'static str,
    /// Options whose value is the next argument and says nothing.
    with_value: &'static str,
    /// Letters whose value, if they have one, is the rest of their word.
    attached: &'static str,
    /// Plain arguments that say nothing, before the one that does.
    skipped: &'static str,
    /// Options whose value is the text of a program; the first one's name goes into the key.
    code: &'static str,
    /// Options whose value names what is run.
    name: &'static str,
    /// Options whose value is the file that is run.
    file: &'static str,
    /// Whether the first plain argument is a file; else it is a name.
    takes_file: bool,
    /// Whether single letters may stand together, so that `-ec` has the option `-c`.
    clusters: bool,
    /// The subcommand that runs something; with any other, the program is meant.
    subcommand: Option<&'static str>,
}

/// What an interpreter is told to run.
#[derive(Debug, PartialEq)]
pub enum Meaning<'a> {
    /// Nothing, or what comes on its standard input.
    Nothing,
    /// This file, with what is left for it to read.
    File(&'a OsStr, &'a [OsString]),
    /// This file, named by an option.
    FileOf(&'static str, &'a OsStr),
    /// This class or function.
    Name(&'a OsStr),
    /// This module, named by an option.
    NameOf(&'static str, &'a OsStr),
    /// This text.
    Code(&'static str, &'a OsStr),
}

const PLAIN: Interpreter = Interpreter {
    names: "",
    with_value: "",
    attached: "",
    skipped: "",
    code: "",
    name: "",
    file: "",
    takes_file: true,
    clusters: false,
    subcommand: None,
};

/// Suites that are one program by name and several by an option: what they read differs by it.
const SUITES: [(&str, &str); 1] = [(
    "soffice",
    "--writer --calc --draw --impress --math --base --global --web",
)];

/// Which part of a suite is started, for the end of its key; empty if `script` is none, or all of it is
/// meant.
pub fn part_of(script: &str, arguments: &[OsString]) -> String {
    let suite = SUITES.iter().find(|(name, _)| *name == script);
    let options = suite.map_or("", |(_, options)| options);
    let part = arguments
        .iter()
        .take_while(|argument| argument.as_bytes().starts_with(b"-"))
        .find_map(|argument| one_of(options, argument.as_bytes()));
    part.map(|option| format!(" {option}")).unwrap_or_default()
}

const ALL: [Interpreter; 14] = [
    Interpreter {
        names: "python pypy",
        with_value: "-W -X --check-hash-based-pycs",
        code: "-c",
        name: "-m",
        clusters: true,
        ..PLAIN
    },
    Interpreter {
        names: "sh bash dash ash zsh ksh mksh fish",
        with_value: "-o +o -O +O --rcfile --init-file",
        code: "-c",
        clusters: true,
        ..PLAIN
    },
    Interpreter {
        names: "perl",
        with_value: "-I",
        attached: "-M -m -i -x -F -C -D -d",
        code: "-e -E",
        clusters: true,
        ..PLAIN
    },
    Interpreter {
        names: "java",
        with_value: "-cp -classpath --class-path -p --module-path --upgrade-module-path --add-modules \
         --add-reads --add-exports --add-opens --limit-modules --patch-module --source",
        name: "-m --module",
        file: "-jar",
        takes_file: false,
        ..PLAIN
    },
    Interpreter {
        names: "node nodejs",
        with_value: "-r --require --import --loader --experimental-loader -C --conditions",
        code: "-e --eval -p --print",
        ..PLAIN
    },
    Interpreter {
        names: "ruby",
        with_value: "-I -r -C -E",
        attached: "-W -K -F -T -x -i",
        code: "-e",
        clusters: true,
        ..PLAIN
    },
    Interpreter {
        names: "php",
        with_value: "-c -d -z",
        code: "-r",
        file: "-f",
        ..PLAIN
    },
    Interpreter {
        names: "lua luajit",
        with_value: "-l",
        code: "-e",
        ..PLAIN
    },
    Interpreter {
        names: "Rscript tclsh wish guile mono mono-sgen gjs gjs-console octave wine wine64",
        code: "-e -c --eval",
        ..PLAIN
    },
    // It executes one of its tools in its own place, which loads the program.
    Interpreter {
        names: "valgrind valgrind.bin",
        ..PLAIN
    },
    Interpreter {
        names: "dotnet",
        skipped: "exec",
        ..PLAIN
    },
    Interpreter {
        names: "electron",
        with_value: "-r --require",
        ..PLAIN
    },
    Interpreter {
        names: "flatpak",
        with_value: "--command --branch --arch --cwd --runtime",
        takes_file: false,
        subcommand: Some("run"),
        ..PLAIN
    },
    Interpreter {
        names: "snap",
        takes_file: false,
        subcommand: Some("run"),
        ..PLAIN
    },
];

/// Names that begin as those of QEMU's user-mode emulators, and are others of its programs.
const QEMU_OTHERS: &str = "system img nbd io ga storage pr-helper bridge-helper edid keymap";

/// qemu-user(1): the program that it emulates stands behind its options.
const QEMU: Interpreter = Interpreter {
    with_value: "-B -D -E -L -R -U -0 -cpu -d -dfilter -g -p -plugin -r -s -seed -tb-size -t",
    ..PLAIN
};

impl Interpreter {
    /// What the kernel starts for files of a format that is registered: the file is its first argument.
    pub const OF_REGISTERED: Interpreter = PLAIN;

    /// The interpreter of an executable's name, its version aside: `python3.11` is `python`.
    pub fn named(base: &str) -> Option<&'static Interpreter> {
        let plain = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let known = ALL
            .iter()
            .find(|one| [plain, base].iter().any(|name| one.is_named(name)));
        let emulates = || {
            let architecture = base.strip_prefix("qemu-")?;
            let is_other = QEMU_OTHERS
                .split_ascii_whitespace()
                .any(|other| architecture.starts_with(other));
            (!is_other).then_some(&QEMU)
        };
        known.or_else(emulates)
    }

    fn is_named(&self, name: &str) -> bool {
        one_of(self.names, name.as_bytes()).is_some()
    }

    fn first_code(&self) -> &'static str {
        self.code.split(' ').next().unwrap_or_default()
    }

    /// Where in the directory of its process it looks for a module first: of two projects each may have one
    /// of that name.
    pub fn modules_here(&self, name: &OsStr) -> Vec<PathBuf> {
        let package = name
            .as_bytes()
            .split(|byte| *byte == b'.')
            .next()
            .unwrap_or_default();
        match self.is_named("python") && !package.contains(&b'/') {
            true => [&b""[..], b".py"]
                .map(|ending| OsString::from_vec([package, ending].concat()).into())
                .into(),
            false => Vec::new(),
        }
    }

    /// What its arguments tell it to run.
    pub fn meaning<'a>(&self, arguments: &'a [OsString]) -> Meaning<'a> {
        let mut rest = arguments.iter();
        let mut subcommand = self.subcommand;
        while let Some(argument) = rest.next() {
            let bytes = argument.as_bytes();
            if bytes == b"--" {
                let next = rest.next();
                return next.map_or(Meaning::Nothing, |next| self.plain(next, rest.as_slice()));
            }
            if bytes == b"-" || bytes == b"-s" && self.is_named("sh") {
                return Meaning::Nothing;
            }
            // A file of arguments, which java(1) reads: what it says is not known here.
            if bytes.first() == Some(&b'@') && self.is_named("java") {
                continue;
            }
            if one_of(self.skipped, bytes).is_some() {
                continue;
            }
            if bytes.len() < 2 || !matches!(bytes[0], b'-' | b'+') {
                match subcommand.take() {
                    None => return self.plain(argument, rest.as_slice()),
                    Some(runs) if runs.as_bytes() == bytes => continue,
                    Some(_) => return Meaning::Nothing,
                }
            }
            if let Some(found) = self.option(bytes, &mut rest) {
                return found;
            }
        }
        Meaning::Nothing
    }

    fn plain<'a>(&self, argument: &'a OsStr, rest: &'a [OsString]) -> Meaning<'a> {
        match (self.takes_file, self.subcommand) {
            (true, _) => Meaning::File(argument, rest),
            (false, None) => Meaning::Name(argument),
            (false, Some(runs)) => Meaning::NameOf(runs, argument),
        }
    }

    /// What an option says, if it says what is run; takes its value off `rest`.
    fn option<'a>(&self, option: &'a [u8], rest: &mut std::slice::Iter<'a, OsString>) -> Option<Meaning<'a>> {
        let mut value = || rest.next().map_or(OsStr::new(""), OsString::as_os_str);
        if let Some(name) = one_of(self.file, option) {
            return Some(Meaning::FileOf(name, value()));
        }
        if let Some(name) = one_of(self.name, option) {
            return Some(Meaning::NameOf(name, value()));
        }
        if one_of(self.code, option).is_some() {
            return Some(Meaning::Code(self.first_code(), value()));
        }
        if one_of(self.with_value, option).is_some() {
            value();
            return None;
        }
        if !self.clusters || option.starts_with(b"--") {
            return None;
        }
        // Letters that stand together; what follows a letter with a value is that value.
        for (index, letter) in option.iter().enumerate().skip(1) {
            let single = [option[0], *letter];
            let attached = &option[index + 1..];
            let known = |words: &'static str| one_of(words, &single);
            let here = |value: &mut dyn FnMut() -> &'a OsStr| match attached {
                [] => value(),
                _ => OsStr::from_bytes(attached),
            };
            if known(self.attached).is_some() {
                return None;
            }
            if let Some(name) = known(self.name) {
                return Some(Meaning::NameOf(name, here(&mut value)));
            }
            if known(self.code).is_some() {
                // A shell takes the text from the next argument whatever follows the letter.
                let text = if self.is_named("sh") {
                    value()
                } else {
                    here(&mut value)
                };
                return Some(Meaning::Code(self.first_code(), text));
            }
            if known(self.with_value).is_some() {
                if attached.is_empty() {
                    value();
                }
                return None;
            }
        }
        None
    }
}

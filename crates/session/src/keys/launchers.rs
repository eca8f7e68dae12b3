//! Programs that only start another one, whose start is meant, and processes that are only part of a program.

use super::names::words;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How a launcher's arguments are read.
pub struct Launcher {
    name: &'static str,
    /// Options whose value is the next argument.
    with_value: &'static [&'static str],
    /// Plain arguments before the command.
    before: usize,
    reading: Reading,
}

#[derive(PartialEq)]
enum Reading {
    /// Options, then the command.
    Plain,
    /// env(1): assignments, too, and no options but those it is known to have.
    Env,
    /// Too much may stand before the command, or it changes what is seen of files.
    Opaque,
}

const fn plain(name: &'static str, with_value: &'static [&'static str], before: usize) -> Launcher {
    let reading = Reading::Plain;
    Launcher {
        name,
        with_value,
        before,
        reading,
    }
}

const fn opaque(name: &'static str) -> Launcher {
    let reading = Reading::Opaque;
    Launcher {
        name,
        with_value: &[],
        before: 0,
        reading,
    }
}

const ALL: [Launcher; 30] = [
    Launcher {
        name: "env",
        with_value: &["-u", "-C"],
        before: 0,
        reading: Reading::Env,
    },
    plain("nice", &["-n", "--adjustment"], 0),
    plain("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    plain("nohup", &[], 0),
    plain("setsid", &[], 0),
    plain("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    plain("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    plain("chrt", &["-T", "-P", "-D"], 1),
    plain("taskset", &[], 1),
    plain("time", &["-f", "-o", "--format", "--output"], 0),
    plain("dbus-run-session", &["--config-file", "--dbus-daemon"], 0),
    plain(
        "xvfb-run",
        &[
            "-e",
            "-f",
            "-n",
            "-p",
            "-s",
            "-w",
            "--error-file",
            "--auth-file",
            "--server-num",
            "--server-args",
        ],
        0,
    ),
    opaque("bwrap"),
    opaque("chroot"),
    opaque("dbus-launch"),
    opaque("doas"),
    opaque("firejail"),
    opaque("flatpak-bwrap"),
    opaque("nsenter"),
    opaque("pkexec"),
    opaque("runuser"),
    opaque("setpriv"),
    opaque("snap-confine"),
    opaque("snap-exec"),
    opaque("start-stop-daemon"),
    opaque("sudo"),
    // Process 1, and users' own managers, execute it first of all in each service's process (systemd 255 and later).
    opaque("systemd-executor"),
    opaque("systemd-run"),
    opaque("unshare"),
    opaque("xargs"),
];

impl Launcher {
    /// The launcher of an executable's name.
    pub fn named(base: &str) -> Option<&'static Launcher> {
        ALL.iter().find(|one| one.name == base)
    }

    /// The command that it starts, empty if none; `None` if that cannot be seen.
    pub fn command(&self, arguments: &[OsString]) -> Option<Vec<OsString>> {
        match self.reading {
            Reading::Opaque => None,
            Reading::Env => behind_env(arguments),
            Reading::Plain => Some(self.behind_options(arguments).to_vec()),
        }
    }

    fn behind_options<'a>(&self, arguments: &'a [OsString]) -> &'a [OsString] {
        let mut rest = arguments;
        while let Some((first, after)) = rest.split_first() {
            let bytes = first.as_bytes();
            if bytes == b"--" {
                rest = after;
                break;
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                break;
            }
            let takes = self.with_value.iter().any(|one| one.as_bytes() == bytes);
            rest = after.get(usize::from(takes)..).unwrap_or_default();
        }
        rest.get(self.before..).unwrap_or_default()
    }
}

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
            let all: Vec<OsString> = words(&text)?.into_iter().chain(after.iter().cloned()).collect();
            // Once: what was split has no -S again.
            return match all.first().is_some_and(|word| word.as_bytes().starts_with(b"-S")) {
                true => None,
                false => behind_env(&all),
            };
        }
        let text = first.to_string_lossy();
        rest = match text.as_ref() {
            "-i" | "-" | "-v" | "--ignore-environment" => after,
            "-u" | "-C" => after.get(1..)?,
            "--" => return Some(after.to_vec()),
            option if option.starts_with('-') => return None,
            assignment if assignment.contains('=') => after,
            _ => return Some(rest.to_vec()),
        };
    }
}

/// What browsers, and programs made of them, call the kinds of their own processes by: options of Chromium and Firefox.
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

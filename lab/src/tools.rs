//! Running the system's own tools (mount, losetup, mkfs), with errors that name the command, what it said,
//! and the package to install when it is missing.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

use anyhow::{Result, anyhow, bail};

/// Debian packages of the tools the lab calls.
const PACKAGES: &[(&str, &str)] = &[
    ("mount", "mount"),
    ("umount", "mount"),
    ("losetup", "mount"),
    ("fincore", "util-linux-extra (util-linux before Debian 13)"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mksquashfs", "squashfs-tools"),
    ("mkfs.erofs", "erofs-utils"),
    ("mmdebstrap", "mmdebstrap"),
    ("fio", "fio"),
    ("chrt", "util-linux"),
    ("chroot", "coreutils"),
    ("systemd-nspawn", "systemd-container"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("vmtouch", "vmtouch"),
    ("preload", "preload"),
    ("e4defrag", "e2fsprogs"),
    ("filefrag", "e2fsprogs"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// Runs a command to its end and returns what it wrote to standard output.
pub fn run<I, S>(program: &str, args: I) -> Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args);
    let output = output(&mut command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`run`], for a command that is already set up.
pub fn output(command: &mut Command) -> Result<Output> {
    output_of(&shown(command), command)
}

/// Like [`output`], for a command that errors shall call `name`.
pub fn output_of(name: &str, command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| explain(&program, &e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = said.trim().lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!("{name} ended with {}: {}", output.status, last.join("\n"));
    }
    Ok(output)
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Why `program` could not be started, with the package that holds it.
pub fn explain(program: &str, error: &io::Error) -> anyhow::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return anyhow!("{program}: {error}");
    }
    let stem = program.rsplit('/').next().unwrap_or(program);
    match PACKAGES.iter().find(|(name, _)| *name == stem) {
        Some((_, package)) => anyhow!("{program} is not installed: apt install {package}"),
        None => anyhow!("{program} is not installed"),
    }
}

/// Fails, before any work, when one of `programs` is not installed.
pub fn require(programs: &[&str]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in programs {
        if !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
            return Err(explain(program, &io::ErrorKind::NotFound.into()));
        }
    }
    Ok(())
}

/// Fails unless the lab runs as root, as loop devices and mounts need.
pub fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("needs root, for loop devices and mounts: run it with sudo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tool_names_its_package() {
        assert!(
            explain("mkfs.xfs", &io::ErrorKind::NotFound.into())
                .to_string()
                .contains("apt install xfsprogs")
        );
        assert!(
            require(&["sh", "no-such-tool"])
                .unwrap_err()
                .to_string()
                .contains("no-such-tool")
        );
    }

    #[test]
    fn failure_shows_the_command_and_its_words() {
        let error = run("sh", ["-c", "echo broken >&2; exit 3"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("broken") && error.contains('3'),
            "{error}"
        );
    }
}

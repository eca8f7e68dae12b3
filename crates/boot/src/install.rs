//! Switching boots on and off: the unit, and its link in `sysinit.target.wants`. On this system, or below the root of
//! another.

use super::init::PROGRAM;
use anyhow::{Context, Result, bail};
use headstart_store::{link_whole, write_whole_for};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Set for a process that comes from an initramfs: the descriptor by which process 1 is let go, opened by the hook, or nothing.
pub const FROM_INITRAMFS: &str = "HEADSTART_INITRAMFS";

const UNIT: &str = include_str!("../../../packaging/systemd/headstart-boot.service");
const NAME: &str = "headstart-boot.service";
/// Wanted by it.
const HOLD_UNIT: &str = include_str!("../../../packaging/systemd/headstart-hold.service");
const HOLD_NAME: &str = "headstart-hold.service";
/// Where the unit says the command is.
const INSTALLED: &str = "/usr/sbin/headstart";
/// Where the command may be.
const PLACES: [&str; 4] = [
    INSTALLED,
    "/usr/bin/headstart",
    "/usr/local/sbin/headstart",
    "/usr/local/bin/headstart",
];
/// Where packages put units, and `make install`.
const PACKAGED: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];
const LOCAL: &str = "etc/systemd/system";
/// What starts it in an initramfs, as packages and `make install` put it.
macro_rules! hook {
    ($place:literal, $from:literal, $path:literal) => {
        Hook {
            place: $place,
            path: $path,
            text: include_str!(concat!("../../../packaging/", $from, "/", $path)),
        }
    };
}
const HOOKS: [Hook; 3] = [
    hook!(
        "etc/initramfs-tools",
        "initramfs-tools",
        "scripts/local-bottom/headstart"
    ),
    hook!(
        "usr/lib/dracut/modules.d",
        "dracut",
        "90headstart/module-setup.sh"
    ),
    hook!("usr/lib/dracut/modules.d", "dracut", "90headstart/headstart.sh"),
];
const WANTS: &str = "etc/systemd/system/sysinit.target.wants";
const STATE: &str = "var/lib/headstart";
const HAS_PROGRAM: bool = !PROGRAM.is_empty();
/// Stands in the place of process 1.
const INIT: &str = "usr/sbin/headstart-init";
const REAL_INIT: &str = "/sbin/init";

/// A file of an initramfs's generator.
struct Hook {
    /// Where the generator looks for it, from the root; there is no such directory where it is not installed.
    place: &'static str,
    path: &'static str,
    text: &'static str,
}

impl Hook {
    fn file(&self, root: &Path) -> PathBuf {
        root.join(self.place).join(self.path)
    }
}

/// Switches boots on; what was written. What a package has installed is used as it is, else a unit and hooks for the initramfs
/// are written that run this command.
pub fn enable(other: Option<&Path>) -> Result<Vec<PathBuf>> {
    let root = other.unwrap_or(Path::new("/"));
    let systemd = ["usr/lib/systemd/systemd", "lib/systemd/systemd"];
    if !systemd.iter().any(|path| root.join(path).exists()) {
        bail!(
            "{} has no systemd, and boots are served by a unit of it: start `headstart boot run` early by other means",
            root.display()
        );
    }
    let mut changed = Vec::new();
    let unit = match packaged(root) {
        Some(unit) => unit,
        None => {
            let (unit, command) = (Path::new(LOCAL).join(NAME), command(other)?);
            write(&root.join(&unit), of_command(UNIT, &command, HAS_PROGRAM), 0o644)?;
            changed.push(root.join(&unit));
            let hold = root.join(LOCAL).join(HOLD_NAME);
            write(&hold, HOLD_UNIT, 0o644)?;
            changed.push(hold);
            for hook in HOOKS.iter().filter(|hook| root.join(hook.place).is_dir()) {
                write(
                    &hook.file(root),
                    of_command(hook.text, &command, HAS_PROGRAM),
                    0o755,
                )?;
                changed.push(hook.file(root));
            }
            unit
        }
    };
    let link = root.join(WANTS).join(NAME);
    make_directory(&root.join(WANTS), 0o755)?;
    link_whole(&Path::new("/").join(unit), &link).with_context(|| cannot("link", &link))?;
    changed.push(link);
    // It must be there when the root is still read-only.
    make_directory(&root.join(STATE), 0o700)?;
    if HAS_PROGRAM {
        let init = root.join(INIT);
        write(&init, PROGRAM, 0o755)?;
        changed.push(init);
    }
    Ok(changed)
}

/// Switches boots off; what was removed. In the place of the program for process 1 stays a link to the real init: a machine
/// whose kernel command line names it would not boot without.
pub fn disable(other: Option<&Path>) -> Result<Vec<PathBuf>> {
    let root = other.unwrap_or(Path::new("/"));
    let mut changed = Vec::new();
    let local = root.join(LOCAL);
    let mut written = vec![
        root.join(WANTS).join(NAME),
        local.join(NAME),
        local.join(HOLD_NAME),
    ];
    if packaged(root).is_none() {
        written.extend(HOOKS.iter().map(|hook| hook.file(root)));
    }
    for path in written {
        if remove(&path)? {
            changed.push(path);
        }
    }
    if changed.is_empty() {
        bail!(
            "boots are not read ahead on {}: nothing to switch off",
            root.display()
        );
    }
    if has_init(other) {
        let init = root.join(INIT);
        link_whole(Path::new(REAL_INIT), &init).with_context(|| cannot("link", &init))?;
        changed.push(init);
    }
    Ok(changed)
}

/// Whether the program is there that can stand in the place of process 1: /[`INIT`].
fn has_init(other: Option<&Path>) -> bool {
    let init = other.unwrap_or(Path::new("/")).join(INIT);
    fs::symlink_metadata(init).is_ok_and(|facts| facts.is_file())
}

/// Whether headstart can begin before process 1 without an initramfs: that program looks for it where packages put it.
pub fn can_be_init(other: Option<&Path>) -> bool {
    has_init(other) && command(other).is_ok_and(|command| PLACES.contains(&command.as_str()))
}

/// The units as packages install them, and their names.
pub fn units() -> [(&'static str, String); 2] {
    [(NAME, UNIT), (HOLD_NAME, HOLD_UNIT)]
        .map(|(name, text)| (name, of_command(text, INSTALLED, HAS_PROGRAM)))
}

/// Whether boots are switched on.
pub fn is_enabled(other: Option<&Path>) -> bool {
    let link = other.unwrap_or(Path::new("/")).join(WANTS).join(NAME);
    fs::symlink_metadata(link).is_ok()
}

/// A unit or a hook that names the command where it is. The line that asks headstart-init goes where there is none: a unit
/// whose condition cannot be executed would never begin.
fn of_command(text: &str, command: &str, has_program: bool) -> String {
    let lines = text
        .lines()
        .filter(|line| has_program || !line.starts_with("ExecCondition="));
    let text: String = lines
        .map(|line| line.replace(INSTALLED, command) + "\n")
        .collect();
    text.replace(&format!("{command}-init"), &format!("/{INIT}"))
}

/// The unit of a package, from the root.
fn packaged(root: &Path) -> Option<PathBuf> {
    PACKAGED
        .iter()
        .map(|directory| Path::new(directory).join(NAME))
        .find(|unit| root.join(unit).exists())
}

/// The path of the command on the system.
fn command(other: Option<&Path>) -> Result<String> {
    let path = match other {
        None => std::env::current_exe().context("cannot find out where this command is")?,
        Some(root) => match PLACES.iter().find(|place| root.join(&place[1..]).exists()) {
            Some(place) => PathBuf::from(place),
            None => bail!(
                "{} has no headstart: copy it to {INSTALLED} there",
                root.display()
            ),
        },
    };
    match path.to_str() {
        // What a unit would read otherwise.
        Some(text) if !text.contains(|c: char| c.is_whitespace() || "%\\\"'$;".contains(c)) => {
            Ok(text.to_owned())
        }
        _ => bail!("{path:?} cannot be named in a unit: install headstart as {INSTALLED}"),
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}: run as root", path.display())
}

fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder.create(path).with_context(|| cannot("create", path))
}

/// Whole or not at all: with half of it the machine may not boot.
fn write(path: &Path, text: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_directory(parent, 0o755)?;
    }
    write_whole_for(path, text.as_ref(), mode).with_context(|| cannot("write", path))
}

/// The command that makes the initramfs anew, where one would begin there.
pub fn remake_initramfs(other: Option<&Path>) -> Option<&'static str> {
    let there = |path: &str| other.unwrap_or(Path::new("/")).join(path).is_file();
    if there("usr/sbin/update-initramfs") {
        Some("update-initramfs -u")
    } else if there("usr/bin/dracut") || there("usr/sbin/dracut") {
        Some("dracut --force")
    } else {
        None
    }
}

fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| cannot("remove", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn system() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in ["usr/lib/systemd/systemd", "usr/sbin/headstart"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        dir
    }

    #[test]
    fn an_image_is_switched_on_and_off() {
        let dir = system();
        let root = Some(dir.path());
        assert!(!is_enabled(root) && disable(root).is_err());
        enable(root).unwrap();
        let written = enable(root).unwrap();
        assert!(is_enabled(root), "{written:?}");
        let link = dir.path().join(WANTS).join(NAME);
        let target = fs::read_link(link).unwrap();
        assert_eq!(target, Path::new("/etc/systemd/system/headstart-boot.service"));
        let unit = fs::read_to_string(dir.path().join(LOCAL).join(NAME)).unwrap();
        assert!(
            unit.contains("ExecStart=/usr/sbin/headstart boot run\n"),
            "{unit}"
        );
        assert!(dir.path().join(STATE).is_dir());
        let init = dir.path().join(INIT);
        assert!(has_init(root) && fs::read(&init).unwrap() == PROGRAM);
        assert!(dir.path().join(LOCAL).join(HOLD_NAME).exists() && unit.contains(HOLD_NAME));
        assert_eq!(disable(root).unwrap().len(), 4);
        assert_eq!(
            fs::read_link(&init).unwrap(),
            Path::new(REAL_INIT),
            "who names it boots"
        );
        assert!(
            !is_enabled(root) && dir.path().join(STATE).is_dir(),
            "the state stays"
        );
    }

    #[test]
    fn units_and_hooks_name_the_command_and_the_program_where_they_are() {
        let condition = "ExecCondition=+/usr/sbin/headstart-init --decide\n";
        assert_eq!(of_command(UNIT, INSTALLED, true), UNIT);
        assert!(UNIT.contains(condition));
        let elsewhere = of_command(UNIT, "/opt/headstart", true);
        assert!(elsewhere.contains(condition) && elsewhere.contains("ExecStart=/opt/headstart boot run\n"));
        let without = of_command(UNIT, INSTALLED, false);
        assert!(without.contains("ExecStart=/usr/sbin/headstart boot run\n"));
        assert!(!without.contains("headstart-init"), "it is not there");
    }

    #[test]
    fn the_unit_looks_for_what_hooks_leave() {
        let mark = "/run/headstart/bypassed";
        assert!(UNIT.contains(&format!("\nConditionPathExists=!{mark}\n")));
        let leave_it = |hook: &&Hook| hook.text.contains(&format!(" >{mark} || true >.{mark}\n"));
        assert_eq!(HOOKS.iter().filter(leave_it).count(), 2);
    }

    #[test]
    fn an_initramfs_gets_its_hooks() {
        let dir = system();
        let root = Some(dir.path());
        enable(root).unwrap();
        assert!(HOOKS.iter().all(|hook| !hook.file(dir.path()).exists()));
        assert_eq!(remake_initramfs(root), None);
        for place in ["etc/initramfs-tools", "usr/lib/dracut/modules.d"] {
            fs::create_dir_all(dir.path().join(place)).unwrap();
        }
        fs::write(dir.path().join("usr/sbin/update-initramfs"), "").unwrap();
        enable(root).unwrap();
        for hook in &HOOKS {
            let mode = fs::metadata(hook.file(dir.path())).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", hook.path);
        }
        assert_eq!(remake_initramfs(root), Some("update-initramfs -u"));
        assert_eq!(disable(root).unwrap().len(), 7);
        assert!(HOOKS.iter().all(|hook| !hook.file(dir.path()).exists()));
    }

    #[test]
    fn a_packaged_unit_is_used_as_it_is() {
        let dir = system();
        fs::create_dir_all(dir.path().join("etc/initramfs-tools")).unwrap();
        let unit = dir.path().join(PACKAGED[0]).join(NAME);
        write(&unit, UNIT, 0o644).unwrap();
        enable(Some(dir.path())).unwrap();
        let target = fs::read_link(dir.path().join(WANTS).join(NAME)).unwrap();
        assert_eq!(target, Path::new("/").join(PACKAGED[0]).join(NAME));
        disable(Some(dir.path())).unwrap();
        assert!(unit.exists(), "it is the package's");
        assert!(HOOKS.iter().all(|hook| !hook.file(dir.path()).exists()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = |dir: &Path| format!("{:#}", enable(Some(dir)).unwrap_err());
        assert!(error(dir.path()).contains("no systemd"));
        let dir = system();
        fs::remove_file(dir.path().join("usr/sbin/headstart")).unwrap();
        assert!(error(dir.path()).contains("copy it to /usr/sbin/headstart"));
    }
}

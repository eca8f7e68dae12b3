//! Switching boots on and off: the unit, and its link in `sysinit.target.wants`. On this system, or below the
//! root of another.

use crate::image::Image;
use crate::program::PROGRAM;
use crate::units::{BARRIER_NAME, BARRIER_UNIT, HAS_PROGRAM, HOOKS, INIT, INSTALLED, NAME, UNIT, of_command};
use anyhow::{Context, Result, bail};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// Where the command may be.
const PLACES: [&str; 4] = [
    INSTALLED,
    "/usr/sbin/headstart",
    "/usr/local/sbin/headstart",
    "/usr/local/bin/headstart",
];
/// Where packages put units, and `make install`.
const PACKAGED: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];
const LOCAL: &str = "etc/systemd/system";
const WANTS: &str = "etc/systemd/system/sysinit.target.wants";
const STATE: &str = "var/lib/headstart";
const REAL_INIT: &str = "/sbin/init";
/// Where systemd looks for generators.
const GENERATOR: &str = "usr/lib/systemd/system-generators/headstart-boot";

fn local(name: &str) -> PathBuf {
    Path::new(LOCAL).join(name)
}

fn wanted() -> PathBuf {
    Path::new(WANTS).join(NAME)
}

/// Switches boots on; what was written. What a package has installed is used as it is, else a unit and hooks
/// for the initramfs are written that run this command.
///
/// Where it fails what it has made is removed: half of it would be wanted by a boot that finds nothing to
/// execute.
pub fn enable(other: Option<&Path>) -> Result<Vec<PathBuf>> {
    let image = Image::open(other)?;
    let mut made = Vec::new();
    let written = enable_in(&image, other, &mut made);
    if written.is_err() {
        for path in made.iter().rev() {
            // Nothing more can be done about it.
            let _ = image.remove(path);
        }
    }
    written
}

/// The same; what was not there before is `made`.
fn enable_in(image: &Image, other: Option<&Path>, made: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let systemd = ["usr/lib/systemd/systemd", "lib/systemd/systemd"];
    if !systemd.iter().any(|path| image.exists(path)) {
        bail!(
            "{} has no systemd, and boots are served by a unit of it: start `headstart boot run` early by other means",
            image.named("").display()
        );
    }
    let mut changed = Vec::new();
    let mut write = |path: PathBuf, text: &[u8], mode| -> Result<()> {
        note_new(image, &path, made);
        image.write(&path, text, mode)?;
        changed.push(image.named(path));
        Ok(())
    };
    let unit = match packaged(image) {
        Some(unit) => unit,
        None => {
            let command = command(image, other.is_some())?;
            let of_command = |text| of_command(text, &command, HAS_PROGRAM);
            write(local(NAME), of_command(UNIT).as_bytes(), 0o644)?;
            write(local(BARRIER_NAME), BARRIER_UNIT.as_bytes(), 0o644)?;
            for hook in HOOKS.iter().filter(|hook| image.has_directory(hook.place)) {
                write(hook.file(), of_command(hook.text).as_bytes(), 0o755)?;
            }
            local(NAME)
        }
    };
    // It must be there when the root is still read-only.
    image.make_directory(STATE, 0o700)?;
    if HAS_PROGRAM {
        write(INIT.into(), PROGRAM, 0o755)?;
    }
    if can_be_init(other) {
        image.make_directory("usr/lib/systemd/system-generators", 0o755)?;
        note_new(image, Path::new(GENERATOR), made);
        image.link(Path::new("/").join(INIT), GENERATOR)?;
        changed.push(image.named(GENERATOR));
    }
    image.make_directory(WANTS, 0o755)?;
    note_new(image, &wanted(), made);
    image.link(Path::new("/").join(unit), wanted())?;
    changed.push(image.named(wanted()));
    Ok(changed)
}

fn note_new(image: &Image, path: &Path, made: &mut Vec<PathBuf>) {
    if image.kind_itself(path).is_none() {
        made.push(path.to_owned());
    }
}

/// Switches boots off; what was removed. In the place of the program for process 1 stays a link to the real
/// init: a machine whose kernel command line names it would not boot without.
pub fn disable(other: Option<&Path>) -> Result<Vec<PathBuf>> {
    let image = Image::open(other)?;
    let mut changed = Vec::new();
    // First the generator: it would lead to the real init.
    let mut written = vec![PathBuf::from(GENERATOR), wanted()];
    if packaged(&image).is_none() {
        // A link is somebody's who has masked it.
        let units = [NAME, BARRIER_NAME].map(local).into_iter();
        written.extend(units.filter(|unit| image.kind_itself(unit) == Some(FileType::RegularFile)));
        written.extend(HOOKS.iter().map(|hook| hook.file()));
    }
    for path in written {
        if image.remove(&path)? {
            changed.push(image.named(path));
        }
    }
    // A package's upgrade brings it back, also where boots are switched off.
    if has_init(&image) {
        image.link(REAL_INIT, INIT)?;
        changed.push(image.named(INIT));
    }
    if changed.is_empty() {
        bail!(
            "boots are not read ahead on {}: nothing to switch off",
            image.named("").display()
        );
    }
    Ok(changed)
}

/// Whether `systemctl disable` or `mask` has switched off the unit by which boots are enabled, of which
/// headstart-init and generators know nothing.
pub fn is_switched_off(other: Option<&Path>) -> bool {
    let is_masked = |image: &Image| image.kind_itself(local(NAME)) == Some(FileType::Symlink);
    // Where they were never enabled, it is begun by other means.
    let was_enabled = |image: &Image| image.kind_itself(GENERATOR).is_some();
    Image::open(other).is_ok_and(|image| {
        was_enabled(&image) && (image.kind_itself(wanted()).is_none() || is_masked(&image))
    })
}

/// Whether the program is there that can stand in the place of process 1: /[`INIT`].
fn has_init(image: &Image) -> bool {
    image.kind_itself(INIT) == Some(FileType::RegularFile)
}

/// Where headstart begins.
pub enum InstalledWay {
    /// In the initramfs, once this command has made it anew; until then as a generator, where that is.
    Initramfs(&'static str),
    /// As a generator of systemd, before it reads its units.
    Generator,
    /// With the first unit.
    Unit,
}

/// The earliest of those that there are.
pub fn earliest_way(other: Option<&Path>) -> InstalledWay {
    match remake_initramfs(other) {
        Some(command) => InstalledWay::Initramfs(command),
        None if can_be_init(other) => InstalledWay::Generator,
        None => InstalledWay::Unit,
    }
}

/// Whether headstart can begin before process 1, or as a generator: the program that does it looks for
/// headstart where packages put it.
fn can_be_init(other: Option<&Path>) -> bool {
    Image::open(other).is_ok_and(|image| {
        let command = command(&image, other.is_some());
        has_init(&image) && command.is_ok_and(|command| PLACES.contains(&command.as_str()))
    })
}

/// Whether boots are switched on.
pub fn is_enabled(other: Option<&Path>) -> bool {
    Image::open(other).is_ok_and(|image| image.kind_itself(wanted()).is_some())
}

/// The unit of a package, from the root.
fn packaged(image: &Image) -> Option<PathBuf> {
    let units = PACKAGED.iter().map(|directory| Path::new(directory).join(NAME));
    units.into_iter().find(|unit| image.exists(unit))
}

/// The path of the command on the system.
fn command(image: &Image, is_other: bool) -> Result<String> {
    let path = match is_other {
        false => std::env::current_exe().context("cannot find out where this command is")?,
        true => match PLACES.iter().find(|place| image.exists(place)) {
            Some(place) => PathBuf::from(place),
            None => bail!(
                "{} has no headstart: copy it to {INSTALLED} there",
                image.named("").display()
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

/// The command that makes the initramfs anew, where one would begin there.
fn remake_initramfs(other: Option<&Path>) -> Option<&'static str> {
    let image = Image::open(other).ok()?;
    if image.has_file("usr/sbin/update-initramfs") {
        Some("update-initramfs -u")
    } else if image.has_file("usr/bin/dracut") || image.has_file("usr/sbin/dracut") {
        Some("dracut --force")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn system() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in ["usr/lib/systemd/systemd", "usr/bin/headstart"] {
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
        assert!(unit.contains("ExecStart=/usr/bin/headstart boot run\n"), "{unit}");
        assert!(dir.path().join(STATE).is_dir());
        let init = dir.path().join(INIT);
        assert_eq!(fs::read(&init).unwrap(), PROGRAM);
        assert!(dir.path().join(local(BARRIER_NAME)).exists() && unit.contains(BARRIER_NAME));
        let generator = dir.path().join(GENERATOR);
        assert_eq!(
            fs::read_link(&generator).unwrap(),
            Path::new("/usr/sbin/headstart-init")
        );
        assert_eq!(disable(root).unwrap().len(), 5);
        assert!(
            fs::symlink_metadata(&generator).is_err(),
            "it would lead to the real init"
        );
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
    fn what_fails_half_way_leaves_nothing_of_its_own() {
        let dir = system();
        // Somebody's directory is where the last link, then the generator's, is to be.
        for in_the_way in [Path::new(WANTS).join(NAME), PathBuf::from(GENERATOR)] {
            let in_the_way = dir.path().join(in_the_way);
            fs::create_dir_all(in_the_way.join("somebodys")).unwrap();
            enable(Some(dir.path())).unwrap_err();
            for path in [local(NAME), local(BARRIER_NAME), PathBuf::from(INIT)] {
                let left = fs::symlink_metadata(dir.path().join(&path));
                assert!(left.is_err(), "{} is left", path.display());
            }
            assert!(in_the_way.join("somebodys").is_dir(), "what was there stays");
            fs::remove_dir_all(&in_the_way).unwrap();
        }
        enable(Some(dir.path())).unwrap();
        assert!(is_enabled(Some(dir.path())));
    }

    #[test]
    fn an_initramfs_gets_its_hooks() {
        let dir = system();
        let root = Some(dir.path());
        enable(root).unwrap();
        assert!(HOOKS.iter().all(|hook| !dir.path().join(hook.file()).exists()));
        assert_eq!(remake_initramfs(root), None);
        for place in ["etc/initramfs-tools", "usr/lib/dracut/modules.d"] {
            fs::create_dir_all(dir.path().join(place)).unwrap();
        }
        fs::write(dir.path().join("usr/sbin/update-initramfs"), "").unwrap();
        enable(root).unwrap();
        for hook in &HOOKS {
            let mode = fs::metadata(dir.path().join(hook.file()))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o755, "{}", hook.path);
        }
        assert_eq!(remake_initramfs(root), Some("update-initramfs -u"));
        assert_eq!(disable(root).unwrap().len(), 8);
        assert!(HOOKS.iter().all(|hook| !dir.path().join(hook.file()).exists()));
    }

    #[test]
    fn a_packaged_unit_is_used_as_it_is() {
        let dir = system();
        fs::create_dir_all(dir.path().join("etc/initramfs-tools")).unwrap();
        let unit = dir.path().join(PACKAGED[0]).join(NAME);
        fs::create_dir_all(unit.parent().unwrap()).unwrap();
        fs::write(&unit, UNIT).unwrap();
        enable(Some(dir.path())).unwrap();
        let target = fs::read_link(dir.path().join(WANTS).join(NAME)).unwrap();
        assert_eq!(target, Path::new("/").join(PACKAGED[0]).join(NAME));
        disable(Some(dir.path())).unwrap();
        assert!(unit.exists(), "it is the package's");
        // A package's upgrade brings the program back.
        let init = dir.path().join(INIT);
        fs::remove_file(&init).unwrap();
        fs::write(&init, PROGRAM).unwrap();
        disable(Some(dir.path())).unwrap();
        assert_eq!(fs::read_link(&init).unwrap(), Path::new(REAL_INIT));
        assert!(HOOKS.iter().all(|hook| !dir.path().join(hook.file()).exists()));
    }

    #[test]
    fn systemctl_switches_boots_off_and_what_its_user_made_stays() {
        let dir = system();
        let root = Some(dir.path());
        let packaged = dir.path().join(PACKAGED[0]).join(NAME);
        fs::create_dir_all(packaged.parent().unwrap()).unwrap();
        fs::write(packaged, UNIT).unwrap();
        enable(root).unwrap();
        assert!(!is_switched_off(root));
        let mask = dir.path().join(local(NAME));
        symlink("/dev/null", &mask).unwrap();
        assert!(is_switched_off(root), "masked");
        disable(root).unwrap();
        assert_eq!(fs::read_link(&mask).unwrap(), Path::new("/dev/null"));
        fs::remove_file(&mask).unwrap();
        enable(root).unwrap();
        fs::write(&mask, "a copy of the administrator's").unwrap();
        fs::remove_file(dir.path().join(wanted())).unwrap();
        assert!(is_switched_off(root), "disabled");
        disable(root).unwrap();
        assert!(mask.exists() && !is_switched_off(root), "once");
    }

    #[test]
    fn of_an_enabling_that_fails_nothing_is_left() {
        for in_the_way in [
            "var/lib/headstart",
            INIT,
            GENERATOR,
            "etc/systemd/system/sysinit.target.wants",
        ] {
            let dir = system();
            let root = Some(dir.path());
            let path = dir.path().join(in_the_way);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match in_the_way {
                INIT | GENERATOR => fs::create_dir(&path).unwrap(),
                _ => fs::write(&path, "in the way").unwrap(),
            }
            let is_file = |(path, _): &(PathBuf, Vec<u8>)| !path.is_dir();
            let before: Vec<_> = all_below(dir.path()).into_iter().filter(is_file).collect();
            enable(root).unwrap_err();
            let left: Vec<_> = all_below(dir.path()).into_iter().filter(is_file).collect();
            assert_eq!(left, before, "{in_the_way}");
            assert!(!is_enabled(root), "{in_the_way}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = |dir: &Path| format!("{:#}", enable(Some(dir)).unwrap_err());
        assert!(error(dir.path()).contains("no systemd"));
        let dir = system();
        fs::remove_file(dir.path().join("usr/bin/headstart")).unwrap();
        assert!(error(dir.path()).contains("copy it to /usr/bin/headstart"));
    }

    /// Every file, link and directory below one, and what it says.
    fn all_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let says = fs::read(&path).unwrap_or_default();
            if path.is_dir() {
                files.extend(all_below(&path));
            }
            files.push((path, says));
        }
        files.sort();
        files
    }

    #[test]
    fn an_image_whose_directories_are_absolute_links_changes_nothing_of_this_system() {
        let (image, host) = (system(), tempfile::tempdir().unwrap());
        let root = image.path();
        // What the links lead to is there on this system, and in the image at the same path.
        for (place, inside) in [("etc/systemd", "etc"), ("usr/sbin", "sbin"), ("var/lib", "lib")] {
            let there = host.path().join(inside);
            let below = root.join(there.strip_prefix("/").unwrap());
            for directory in [&there, &below] {
                fs::create_dir_all(directory).unwrap();
            }
            let link = root.join(place);
            if link.exists() {
                fs::rename(link.join("headstart"), below.join("headstart")).unwrap();
                fs::remove_dir(&link).unwrap();
            }
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(&there, &link).unwrap();
        }
        fs::write(host.path().join("sbin/headstart-init"), "of this system").unwrap();
        fs::create_dir(host.path().join("lib/headstart")).unwrap();
        let before = all_below(host.path());
        enable(Some(root)).unwrap();
        assert!(is_enabled(Some(root)));
        assert_eq!(all_below(host.path()), before);
        let below = root.join(host.path().strip_prefix("/").unwrap());
        assert_eq!(fs::read(below.join("sbin/headstart-init")).unwrap(), PROGRAM);
        assert!(below.join("etc/system").join(NAME).exists() && below.join("lib/headstart").is_dir());
        let state = crate::state_below(root).unwrap();
        assert_eq!(state, below.join("lib/headstart").canonicalize().unwrap());
        disable(Some(root)).unwrap();
        assert!(!is_enabled(Some(root)));
        assert_eq!(all_below(host.path()), before);
    }
}

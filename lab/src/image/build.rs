//! From a recipe to a root directory, and through [`super::pack`] to an image file, both cached.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::pack::{self, EPOCH};
use super::{Fs, Recipe, Tree};
use crate::cgroup::Cgroup;
use crate::registry::{Item, Registry};
use crate::{paths, tools};

/// Where the image of `recipe` on `fs` is or will be.
fn path(recipe: &Recipe, fs: Fs) -> Result<PathBuf> {
    let name = format!("{}-{}-{}.img", recipe.image_name(), recipe.hash(), fs.on_disk());
    Ok(paths::cache()?.join(name))
}

/// The image of `recipe` on `fs` if the cache has it.
pub fn cached(recipe: &Recipe, fs: Fs) -> Result<Option<PathBuf>> {
    Ok(Some(path(recipe, fs)?).filter(|image| image.exists()))
}

/// The image of `recipe` on `fs`, built if the cache has none; `say` is told what is being done.
pub fn build(recipe: &Recipe, fs: Fs, registry: &Registry, say: &dyn Fn(&str)) -> Result<PathBuf> {
    let (image, cache) = (path(recipe, fs)?, paths::cache()?);
    let fs = fs.on_disk();
    if image.exists() {
        return Ok(image);
    }
    tools::require_root()?;
    tools::require(pack::tools(fs))?;
    room(recipe, &cache)?;
    // Another lab may be building the same image.
    let _lock = paths::lock_cache(&cache, say)?;
    if image.exists() {
        return Ok(image);
    }
    let root = root(recipe, &cache, registry, say)?;
    say(&format!("packing {} into {fs}", recipe.name));
    // Whole or not at all: the final name appears when the image is complete.
    let partial = image.with_extension("partial");
    let guard = registry.guard(Item::Scratch {
        path: partial.clone(),
    })?;
    pack::pack(recipe, &root, fs, &partial, registry, say)?;
    fs::rename(&partial, &image).with_context(|| format!("naming {}", image.display()))?;
    guard.undo()?;
    Ok(image)
}

/// Fails if the cache has not the room that building needs.
fn room(recipe: &Recipe, cache: &Path) -> Result<()> {
    let stat = rustix::fs::statvfs(cache).with_context(|| format!("looking at {}", cache.display()))?;
    let free_mb = (stat.f_bavail * stat.f_frsize) >> 20;
    if free_mb < recipe.room_mb {
        bail!(
            "building {} takes {} MiB in {}, and {free_mb} MiB are free: make room, or set HEADSTART_LAB_CACHE to another directory",
            recipe.image_name(),
            recipe.room_mb,
            cache.display()
        );
    }
    Ok(())
}

/// The root directory of `recipe`, built if the cache has none.
fn root(recipe: &Recipe, cache: &Path, registry: &Registry, say: &dyn Fn(&str)) -> Result<PathBuf> {
    let root = cache.join(format!("{}-{}-root", recipe.image_name(), recipe.hash()));
    if root.exists() {
        return Ok(root);
    }
    tools::require(&["mmdebstrap", "chroot", "unshare", "mount"])?;
    let (begin, partial) = (SystemTime::now(), root.with_extension("partial"));
    let scratch = Item::Scratch {
        path: partial.clone(),
    };
    let guard = registry.guard(scratch)?;
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    }
    say(&format!(
        "installing Debian {} with {}",
        recipe.suite,
        recipe.packages.join(" ")
    ));
    let mut words = vec!["mmdebstrap".to_owned()];
    words.extend(["--mode=root", "--variant=minbase", "--format=directory"].map(str::to_owned));
    // Documentation is half of the files and none of the start.
    words.push("--dpkgopt=path-exclude=/usr/share/doc/*".into());
    words.push("--dpkgopt=path-exclude=/usr/share/locale/*".into());
    if !recipe.packages.is_empty() {
        words.push(format!("--include={}", recipe.packages.join(",")));
    }
    words.push(recipe.suite.clone());
    words.push(partial.to_string_lossy().into_owned());
    contained(registry, &words)?;
    for file in &recipe.file {
        write_file(
            &inside(&partial, &file.path),
            file.content.trim_start_matches('\n').as_bytes(),
        )?;
    }
    for tree in &recipe.tree {
        say(&format!("writing {} files", tree.files));
        write_tree(&inside(&partial, &tree.path), tree)?;
    }
    for line in &recipe.setup {
        say(line);
        // As in a running system: some programs find themselves by /proc, and engines of containers want a
        // root that is mounted.
        let script = "mount --bind \"$1\" \"$1\" && mount -t proc proc \"$1/proc\" && exec env -i PATH=\"$PATH\" HOME=/root \
             SOURCE_DATE_EPOCH=\"$SOURCE_DATE_EPOCH\" chroot \"$1\" /bin/sh -c \"$2\"";
        let words = ["sh", "-c", script, "sh", &partial.to_string_lossy(), line];
        contained(registry, &words.map(str::to_owned)).with_context(|| format!("setup {line:?}"))?;
    }
    settle(&partial, begin)?;
    fs::rename(&partial, &root).with_context(|| format!("naming {}", root.display()))?;
    guard.undo()?;
    Ok(root)
}

/// What differs between two installations of the same packages and matters to no program.
const TRACES_OF_INSTALLING: &[&str] = &[
    "var/cache/ldconfig/aux-cache",
    "var/log/alternatives.log",
    "var/log/apt/history.log",
    "var/log/apt/term.log",
    "var/log/bootstrap.log",
    "var/log/dpkg.log",
];

/// Removes the traces of installing, and gives what was made since `begin` one time: a day after the files of
/// recipes, so that what was made from them still counts as newer.
fn settle(root: &Path, begin: SystemTime) -> Result<()> {
    for name in TRACES_OF_INSTALLING {
        match fs::remove_file(root.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {name}"));
            }
            _ => {}
        }
    }
    let seconds = EPOCH.parse::<i64>().context("a time")? + 86_400;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    // A directory's time is set after its entries are removed or named: nothing below changes it again.
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata =
            fs::symlink_metadata(&path).with_context(|| format!("looking at {}", path.display()))?;
        if metadata.modified()? >= begin {
            utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)
                .with_context(|| format!("setting the time of {}", path.display()))?;
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
    }
    Ok(())
}

/// Runs a command to its end with mounts and a control group of its own: killed at any moment, neither a
/// mount nor a process of it stays, and what is mounted in a root directory is never seen by whoever removes
/// that.
fn contained(registry: &Registry, words: &[String]) -> Result<()> {
    let group = Cgroup::new(&format!("headstart-lab-{}", std::process::id()), registry)?;
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = group.command_alone("none", program);
    command
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SOURCE_DATE_EPOCH", EPOCH);
    let result = tools::output_of(&words.join(" "), &mut command);
    group.end()?;
    result.map(drop)
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = fs::File::create(path)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        // Old enough for git to trust its index.
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(EPOCH.parse().unwrap_or_default());
        file.set_modified(time)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Files of words, the same ones every time.
fn write_tree(root: &Path, tree: &Tree) -> Result<()> {
    let mut seed = 1u64;
    let mut next = |below: usize| {
        // Knuth's MMIX generator.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    for number in 0..tree.files {
        let size = tree.bytes[0] + next(tree.bytes[1] - tree.bytes[0] + 1);
        let mut text = String::with_capacity(size + 8);
        while text.len() < size {
            text.push_str(&format!("{:x}", next(1 << 24)));
            text.push(if next(10) == 0 { '\n' } else { ' ' });
        }
        text.truncate(size);
        let directory = root.join(format!("d{:03}", number / tree.per_directory));
        write_file(&directory.join(format!("f{number:05}.txt")), text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_told_before_anything_is_built() {
        let directory = tempfile::tempdir().unwrap();
        let mut recipe = Recipe::load("git").unwrap();
        room(&recipe, directory.path()).unwrap_or_else(|error| panic!("{error}"));
        recipe.room_mb = u64::MAX;
        let error = room(&recipe, directory.path()).unwrap_err().to_string();
        assert!(error.contains("git") && error.contains("MiB are free"), "{error}");
    }

    #[test]
    fn what_was_made_now_gets_one_time_and_what_came_in_packages_keeps_its_own() {
        let root = tempfile::tempdir().unwrap();
        let old = root.path().join("old");
        write_file(&old, b"x").unwrap();
        let begin = SystemTime::now() - std::time::Duration::from_secs(1);
        fs::create_dir_all(root.path().join("var/log")).unwrap();
        fs::write(root.path().join("var/log/dpkg.log"), "today").unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("link")).unwrap();
        settle(root.path(), begin).unwrap();
        let seconds = |name: &str| {
            let metadata = fs::symlink_metadata(root.path().join(name)).unwrap();
            std::os::unix::fs::MetadataExt::mtime(&metadata)
        };
        let epoch = EPOCH.parse::<i64>().unwrap();
        assert_eq!(seconds("old"), epoch);
        for name in ["link", "var/log", "var"] {
            assert_eq!(seconds(name), epoch + 86_400, "{name}");
        }
        assert!(!root.path().join("var/log/dpkg.log").exists());
    }

    #[test]
    fn trees_are_the_same_every_time_and_within_bounds() {
        let tree = Tree {
            path: "/t".into(),
            files: 50,
            per_directory: 7,
            bytes: [10, 300],
        };
        let read = || {
            let directory = tempfile::tempdir().unwrap();
            write_tree(directory.path(), &tree).unwrap();
            let mut files = Vec::new();
            for d in fs::read_dir(directory.path()).unwrap() {
                for f in fs::read_dir(d.unwrap().path()).unwrap() {
                    let f = f.unwrap();
                    files.push((f.file_name(), fs::read(f.path()).unwrap()));
                }
            }
            files.sort();
            files
        };
        let files = read();
        assert_eq!(files.len(), 50);
        assert!(
            files
                .iter()
                .all(|(_, content)| (10..=300).contains(&content.len()))
        );
        assert_eq!(files, read());
    }
}

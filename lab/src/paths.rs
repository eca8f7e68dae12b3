//! Where the lab keeps things, and the lock that lets one experiment at a time use the fixed mount point.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;

/// Mounts and records of what is in use: `$HEADSTART_LAB_DIR`, else `/var/tmp/headstart-lab`. One fixed
/// place, because plans hold paths.
pub fn base() -> Result<PathBuf> {
    let base = std::env::var_os("HEADSTART_LAB_DIR")
        .map_or_else(|| PathBuf::from("/var/tmp/headstart-lab"), PathBuf::from);
    fs::create_dir_all(&base).with_context(|| format!("creating {}", base.display()))?;
    fs::canonicalize(&base).with_context(|| format!("resolving {}", base.display()))
}

/// Built images: `$HEADSTART_LAB_CACHE`, else `target/lab` below the working directory.
pub fn cache() -> Result<PathBuf> {
    let cache =
        std::env::var_os("HEADSTART_LAB_CACHE").map_or_else(|| PathBuf::from("target/lab"), PathBuf::from);
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    fs::canonicalize(&cache).with_context(|| format!("resolving {}", cache.display()))
}

/// Held while an experiment runs, or an image is built; let go when dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Takes the lock of the lab's directory, or says that another lab has it.
pub fn lock() -> Result<Lock> {
    let path = base()?.join("lock");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "another headstart-lab is at work in {}: wait for it, or set HEADSTART_LAB_DIR to another directory",
            path.parent().unwrap_or(&path).display()
        ),
        Err(error) => Err(io::Error::from(error)).with_context(|| format!("locking {}", path.display())),
    }
}

/// Takes the lock of the cache of images, after waiting for whoever builds there.
pub fn lock_cache(cache: &Path, say: &dyn Fn(&str)) -> Result<Lock> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        say("waiting for another headstart-lab to build an image");
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(io::Error::from)
            .with_context(|| format!("locking {}", path.display()))?;
    }
    Ok(Lock(file))
}

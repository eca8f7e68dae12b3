//! A FUSE file system that this process serves.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, Filesystem, KernelConfig, Session};

use crate::print;
use crate::registry::abort_fuse;

/// One that is mounted; it goes away when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    session: Option<BackgroundSession>,
    point: PathBuf,
}

impl Mounted {
    /// Mounts what `served` serves at `point`, a path as the mount table will name it.
    pub fn new(served: impl Filesystem, point: &Path, config: &Config) -> Result<Mounted> {
        let session = Session::new(served, point, config)
            .and_then(Session::spawn)
            .with_context(|| format!("mounting a FUSE file system at {}", point.display()))?;
        Ok(Mounted {
            session: Some(session),
            point: point.to_owned(),
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        // The connection is ended, not only the mount: another program's mount namespace may hold a copy of
        // that, for ever.
        if let Err(error) = abort_fuse(&self.point) {
            print::note(format_args!(
                "headstart-lab: ending {}: {error:#}",
                self.point.display()
            ));
        }
        if let Err(error) = session.join() {
            print::note(format_args!(
                "headstart-lab: serving {}: {error}",
                self.point.display()
            ));
        }
    }
}

/// Lets the kernel have so many requests under way in the background.
pub fn allow_at_once(config: &mut KernelConfig, requests: u16) -> io::Result<()> {
    config
        .set_max_background(requests)
        .map_err(|limit| refused(limit.into()))?;
    config
        .set_congestion_threshold(requests)
        .map_err(|limit| refused(limit.into()))?;
    Ok(())
}

/// Why a setting of a [`KernelConfig`] was not taken.
pub fn refused(limit: u32) -> io::Error {
    io::Error::other(format!("FUSE setting refused; the limit is {limit}"))
}

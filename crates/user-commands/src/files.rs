//! Files that the user names: read with a bound, told apart by their magic.

use anyhow::{Context, Result, bail};
use headstart_model::format::{Kind, MAX_FILE};
use headstart_model::plan::PlanFile;
use headstart_model::{Outcome, Profile, ProfileSet, Trace};
use headstart_store::read_bounded;
use std::path::Path;

/// Any of headstart's files.
pub enum Any {
    /// A trace, and the bytes of its file.
    Trace(Box<Trace>, usize),
    /// A profile.
    Profile(Profile),
    /// A plan, checked.
    Plan(PlanFile),
    /// An outcome.
    Outcome(Outcome),
    /// Profiles that travel.
    ProfileSet(ProfileSet),
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    match read_bounded(path, MAX_FILE)? {
        Some(bytes) => Ok(bytes),
        None => bail!("{}: no such file", path.display()),
    }
}

fn named<T, E: std::error::Error + Send + Sync + 'static>(path: &Path, result: Result<T, E>) -> Result<T> {
    result.with_context(|| path.display().to_string())
}

/// Reads a trace.
pub fn trace(path: &Path) -> Result<Trace> {
    named(path, Trace::from_bytes(&bytes(path)?))
}

/// Reads a profile.
pub fn profile(path: &Path) -> Result<Profile> {
    named(path, Profile::from_bytes(&bytes(path)?))
}

/// Reads profiles that travel.
pub fn profile_set(path: &Path) -> Result<ProfileSet> {
    named(path, ProfileSet::from_bytes(&bytes(path)?))
}

/// Reads whatever it is.
pub fn read_any(path: &Path) -> Result<Any> {
    let bytes = bytes(path)?;
    Ok(match Kind::detect(&bytes) {
        Some(Kind::Trace) => Any::Trace(Box::new(named(path, Trace::from_bytes(&bytes))?), bytes.len()),
        Some(Kind::Profile) => Any::Profile(named(path, Profile::from_bytes(&bytes))?),
        Some(Kind::Outcome) => Any::Outcome(named(path, Outcome::from_bytes(&bytes))?),
        Some(Kind::ProfileSet) => Any::ProfileSet(named(path, ProfileSet::from_bytes(&bytes))?),
        Some(Kind::Plan) => {
            let file = PlanFile::new(bytes);
            named(path, file.plan().map(drop))?;
            Any::Plan(file)
        }
        None => bail!(
            "{} is no file of headstart's: give a trace, a profile, profiles that were exported, a plan or an outcome",
            path.display()
        ),
    })
}

/// Refuses a file to be written that no directory is there for, or that is there and no regular file: a link
/// may lead anywhere, and nobody wants a device or a directory replaced.
pub fn refuse_all_but_files(output: &Path) -> Result<()> {
    let has_directory =
        (output.parent()).is_none_or(|parent| parent.as_os_str().is_empty() || parent.is_dir());
    match output.symlink_metadata() {
        Ok(facts) if !facts.is_file() => bail!(
            "{} is there and no regular file: remove it, or name another file",
            output.display()
        ),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound || !has_directory => {
            Err(error).with_context(|| output.display().to_string())
        }
        _ => Ok(()),
    }
}

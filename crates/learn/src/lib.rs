//! Traces and outcomes become knowledge: [`learn`] merges runs into a profile, [`review`] says what a replay
//! was worth, [`verdict`] whether replays pay. Pure: no system call, no clock.

mod exact;
mod fold;
mod named_files;
mod needed;
mod pace;
mod review;
mod run;
mod service;
mod unplanned;
mod used;
pub mod verdict;

pub use exact::exact_is_due;
pub use needed::memory_needed_of_late;
pub use pace::pace_of_late;
pub use review::{Reviewed, review};
pub use service::{Served, ahead, served};
pub use unplanned::much_is_unplanned;
pub use used::used;

use headstart_model::profile::Policy;
use headstart_model::{FilePath, Key, NamedFiles, Profile, Trace};

/// How to learn.
#[derive(Clone, Debug)]
pub struct LearnOptions {
    /// Whose profile it is.
    pub key: Key,
    /// How runs are merged.
    pub policy: Policy,
    /// Now, nanoseconds since 1970.
    pub now_unix_ns: u64,
    /// Nothing at or below these paths is learned.
    pub exclude: Vec<FilePath>,
    /// What the arguments of the starts name.
    pub named: NamedFiles,
}

/// Where nothing worth reading ahead lives: file systems made by the kernel, and what is made anew at every
/// boot.
pub const DEFAULT_EXCLUDE: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Why nothing was learned.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// A trace is not whole.
    #[error("the trace teaches nothing: {0}")]
    Unfit(String),
    /// Page numbers of different sizes cannot be merged.
    #[error(
        "the trace has pages of {trace} bytes, the profile of {profile}: forget the profile to begin anew"
    )]
    PageSize {
        /// The trace's.
        trace: u32,
        /// The profile's.
        profile: u32,
    },
    /// There was no trace.
    #[error("there is no trace to learn from: name at least one")]
    Nothing,
}

/// Merges traces, oldest first, into the profile learned before, or into a new one. On refusal the old
/// profile stays what it was: nothing is learned from any of the traces.
///
/// `Decay`, `Union` and `Intersection` continue from `previous`; `K/N` is a vote among the last `N` traces
/// given and starts anew.
pub fn learn(
    previous: Option<Profile>,
    traces: &[Trace],
    options: &LearnOptions,
) -> Result<Profile, Refused> {
    let (first, used) = match options.policy {
        Policy::KOfN { n, .. } => (None, &traces[traces.len().saturating_sub(usize::from(n))..]),
        _ => (previous, traces),
    };
    let page_size = traces.first().ok_or(Refused::Nothing)?.meta.page_size;
    let mut profile = first.unwrap_or_else(|| Profile::new(options.key.clone(), page_size, options.policy));
    for trace in used {
        if let Some(reason) = trace.unfit() {
            return Err(Refused::Unfit(reason));
        }
        if trace.meta.page_size != profile.page_size {
            return Err(Refused::PageSize {
                trace: trace.meta.page_size,
                profile: profile.page_size,
            });
        }
    }
    for trace in used {
        let mut run = run::Run::from_trace(trace, &options.exclude);
        run.named = named_files::named(&run.paths, trace, options);
        fold::fold(&mut profile, run, options.policy);
    }
    if let Policy::KOfN { n, .. } = options.policy {
        // Fewer runs than asked for cannot have more votes than they are.
        fold::rescale(&mut profile, f64::from(n));
    }
    profile.key = options.key.clone();
    profile.policy = options.policy;
    profile.updated_unix_ns = options.now_unix_ns;
    // What has the least weight is the least loss where it is too much for a file.
    profile.fit();
    Ok(profile)
}

#[cfg(test)]
mod boot_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;
#[cfg(test)]
mod window_tests;

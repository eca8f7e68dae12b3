//! What can go wrong, and the way out.

use std::io;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The process lacks a capability.
    #[error(
        "recording with {backend} needs {capability} ({what}): run as root, or grant it to the binary with setcap"
    )]
    Capability {
        /// The back-end that was asked for.
        backend: &'static str,
        /// The capability's name, such as `CAP_BPF`.
        capability: &'static str,
        /// What was refused, with the kernel's own error.
        what: String,
    },
    /// The kernel lacks a feature.
    #[error("this kernel cannot record with {backend}: {feature}; {way_out}")]
    Unsupported {
        /// The back-end that was asked for.
        backend: &'static str,
        /// What is missing.
        feature: String,
        /// What to do instead.
        way_out: &'static str,
    },
    /// Neither back-end works.
    #[error("nothing can record here. BPF: {bpf}. tracefs: {tracefs}")]
    NoBackend {
        /// Why BPF does not.
        bpf: Box<RecordError>,
        /// Why tracefs does not.
        tracefs: Box<RecordError>,
    },
    /// /proc is not there, or of a container that this process is not in.
    #[error(
        "/proc does not show this process ({source}), so that processes cannot be told apart: mount the one of this pid \
         namespace (mount -t proc proc /proc, or unshare --mount-proc)"
    )]
    NoProc {
        /// The system's error.
        source: io::Error,
    },
    /// A process that shall be recorded does not exist.
    #[error("there is no process {pid} in this pid namespace: name one that has not ended")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// A step failed that normally works.
    #[error("cannot {step}: {source}")]
    Io {
        /// What was being done.
        step: String,
        /// The system's error.
        source: io::Error,
    },
    /// libbpf refused.
    #[error("cannot {step}: {source}")]
    Bpf {
        /// What was being done.
        step: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The draining thread is gone, which only a bug in headstart can bring about.
    #[error("the recording thread ended early; please report this")]
    ThreadGone,
    /// The same, where a filter of system calls may have brought it about.
    #[error("a filter of system calls (seccomp) does not let this process record")]
    Filtered,
    /// The draining thread waits for the kernel.
    #[error("the recording thread does not answer")]
    NoAnswer,
}

impl RecordError {
    /// Of a thread that has not answered, and has ended if `is_gone`.
    pub(crate) fn unanswered(is_gone: bool) -> RecordError {
        match is_gone {
            true if headstart_system::limits::is_filtered() => RecordError::Filtered,
            true => RecordError::ThreadGone,
            false => RecordError::NoAnswer,
        }
    }

    /// A failed step with the system's error.
    pub(crate) fn io(step: impl Into<String>, source: impl Into<io::Error>) -> RecordError {
        RecordError::Io {
            step: step.into(),
            source: source.into(),
        }
    }
}

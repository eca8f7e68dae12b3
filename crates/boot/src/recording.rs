//! The recorder of a boot. Where BPF cannot record, tracefs does, and that a unit without CAP_SYS_ADMIN
//! cannot mount: systemd does it early in every boot (`sys-kernel-tracing.mount`), and recording begins then.
//! Nobody is held for it.

use headstart_record::{Options, RecordError, Recorder};
use std::path::Path;

/// Where systemd mounts it.
const TRACEFS: &str = "/sys/kernel/tracing/instances";

/// The recorder, or why there is none.
pub struct Recording {
    /// `None` if it is not this boot's turn to be recorded.
    recorder: Option<Result<Recorder, RecordError>>,
    /// Whether it may be tried again once tracefs is mounted.
    waits: bool,
}

impl Recording {
    /// What came of the first try; `None` where it is not this boot's turn.
    pub fn new(recorder: Option<Result<Recorder, RecordError>>) -> Recording {
        let has_failed = matches!(recorder, Some(Err(_)));
        Recording {
            waits: has_failed && !Path::new(TRACEFS).exists(),
            recorder,
        }
    }

    /// Whether a mount may change something.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Tries to attach again if tracefs has been mounted meanwhile. Returns whether it tried.
    pub fn retry(&mut self, options: &Options) -> bool {
        if !self.waits || !Path::new(TRACEFS).exists() {
            return false;
        }
        *self = Recording {
            recorder: Some(Recorder::start(options)),
            waits: false,
        };
        true
    }

    /// The recorder, if there is one.
    pub fn get(&self) -> Option<&Recorder> {
        self.recorder.as_ref()?.as_ref().ok()
    }

    /// Why there is none, if that is an error.
    pub fn error(&self) -> Option<&RecordError> {
        self.recorder.as_ref()?.as_ref().err()
    }

    /// All that is known of it, to be finished.
    pub fn into_inner(self) -> Option<Result<Recorder, RecordError>> {
        self.recorder
    }
}

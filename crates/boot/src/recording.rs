//! The recorder of a boot. Where BPF cannot record, tracefs does, and that a unit without CAP_SYS_ADMIN cannot mount:
//! systemd does it early in every boot (`sys-kernel-tracing.mount`), and recording begins then. Nobody is held for it.

use headstart_record::{Options, RecordError, Recorder};
use std::path::Path;

/// Where systemd mounts it.
const TRACEFS: &str = "/sys/kernel/tracing/instances";

/// The recorder, or why there is none.
pub struct Recording {
    recorder: Result<Recorder, RecordError>,
    /// Whether it may be tried again once tracefs is mounted.
    waits: bool,
}

impl Recording {
    /// What came of the first try.
    pub fn new(recorder: Result<Recorder, RecordError>) -> Recording {
        Recording {
            waits: recorder.is_err() && !Path::new(TRACEFS).exists(),
            recorder,
        }
    }

    /// Whether a mount may change something.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Tries again if tracefs has been mounted since; whether it did.
    pub fn look(&mut self, options: &Options) -> bool {
        if !self.waits || !Path::new(TRACEFS).exists() {
            return false;
        }
        *self = Recording {
            recorder: Recorder::start(options),
            waits: false,
        };
        true
    }

    /// The recorder, or why there is none.
    pub fn get(&self) -> Result<&Recorder, &RecordError> {
        self.recorder.as_ref()
    }

    /// The same, to be finished.
    pub fn into_inner(self) -> Result<Recorder, RecordError> {
        self.recorder
    }
}

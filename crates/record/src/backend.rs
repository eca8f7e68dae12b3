//! What a back-end is, and which one records.

use crate::error::RecordError;
use crate::event::Event;
use crate::options::{BackendChoice, Options};
use crate::{bpf, tracefs};
use headstart_model::trace::{Backend as BackendName, Evidence};

/// Something that sees what processes use. It lives on the draining thread from its making to its end.
pub(crate) trait Backend {
    /// Which it is.
    fn name(&self) -> BackendName;

    /// What its page events mean.
    fn evidence(&self) -> Evidence;

    /// Records this process and its descendants from now on (scope tree). The process is a child of the recorder,
    /// stopped before its exec. Children it has already are not looked for.
    fn add_root(&mut self, pid: u32) -> Result<(), RecordError>;

    /// Hands over what was seen since the last call, in order of time as far as the kernel gives it.
    fn drain(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError>;

    /// Sees nothing more from now on; what was seen before still waits to be drained.
    fn stop(&mut self) -> Result<(), RecordError>;

    /// How long its processes waited for block devices so far, their threads added up, nanoseconds; `None` where it does
    /// not see that.
    fn blocked_ns(&mut self) -> Result<Option<u64>, RecordError>;

    /// Events dropped so far because a buffer was full.
    fn lost(&mut self) -> Result<u64, RecordError>;
}

/// The back-end that `options` ask for, attached and running; without `filter` it sends also what it told already, as
/// far as it could leave it out.
pub(crate) fn start(options: &Options, filter: bool) -> Result<Box<dyn Backend>, RecordError> {
    match options.backend {
        BackendChoice::Bpf => bpf::start(options, filter),
        BackendChoice::Tracefs => tracefs::start(options),
        BackendChoice::Auto => bpf::start(options, filter).or_else(|bpf| {
            tracefs::start(options).map_err(|tracefs| RecordError::NoBackend {
                bpf: Box::new(bpf),
                tracefs: Box::new(tracefs),
            })
        }),
    }
}

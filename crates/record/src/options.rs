//! What to record, how, and until when.

use headstart_model::trace::Scope;
use std::time::Duration;

/// What to record, how, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose uses: the tree below [`Recorder::add_root`](crate::Recorder::add_root), or everybody's.
    pub scope: Scope,
    /// What records.
    pub backend: BackendChoice,
    /// When the start has ended.
    pub until: Until,
    /// When the recording ends at the latest.
    pub limit: Duration,
    /// Size of the kernel's event buffer, bytes; rounded up to a power of two.
    pub buffer_bytes: usize,
    /// A trace instance that the kernel command line may have made (`trace_instance=NAME,EVENT…`): what it saw before this
    /// recording began is part of it, in scope system, on kernels with events of page use.
    pub early_instance: Option<String>,
    /// Processes (thread group ids) whose doings are never recorded; the recorder's own is always one of them.
    pub exclude_pids: Vec<u32>,
    /// The command, for the trace's description only.
    pub command: Vec<String>,
    /// Whether a replay runs beside the start, for the trace's description only.
    pub replayed: bool,
}

/// Which back-end records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// BPF where it works, else tracefs.
    #[default]
    Auto,
    /// BPF or an error.
    Bpf,
    /// tracefs or an error.
    Tracefs,
}

/// When a start has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the command ends.
    Exit,
    /// When no page was used for the first time and little CPU was spent for so long (or when the command ends).
    Quiet {
        /// How long, seconds.
        seconds: u64,
    },
    /// After so many seconds (or when the command ends).
    Seconds(u64),
}

impl Options {
    /// The default buffer: at 40 bytes an event and a million events a second it fills in 0.4 s, four times the
    /// drain interval.
    pub const BUFFER_BYTES: usize = 16 << 20;

    /// The default limit.
    pub const LIMIT: Duration = Duration::from_secs(60);

    /// A recording of a command's own tree until it exits, with the defaults for everything else.
    pub fn tree(command: Vec<String>) -> Options {
        Options {
            scope: Scope::Tree,
            until: Until::Exit,
            command,
            ..Options::system()
        }
    }

    /// A recording of everything until it has been quiet for two seconds, with the defaults for everything else.
    pub fn system() -> Options {
        Options {
            scope: Scope::System,
            backend: BackendChoice::Auto,
            until: Until::Quiet { seconds: 2 },
            limit: Options::LIMIT,
            buffer_bytes: Options::BUFFER_BYTES,
            early_instance: None,
            exclude_pids: Vec::new(),
            command: Vec::new(),
            replayed: false,
        }
    }
}

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
    /// Size of the kernel's buffer for events of pages and processes, bytes; rounded up to a power of two.
    /// Half as much is for look-ups.
    pub buffer_bytes: usize,
    /// A trace instance that the kernel command line may have made (`trace_instance=NAME,EVENT…`): what it
    /// saw before this recording began is part of it, in scope system, on kernels with events of page use.
    pub early_instance: Option<String>,
    /// Processes (thread group ids in this process's pid namespace) whose doings are never recorded; the
    /// recorder's own is always one of them.
    pub exclude_pids: Vec<u32>,
    /// Whether what threads, block devices and memory do is recorded too, for charts. Only BPF can.
    pub activity: bool,
    /// The command, for the trace's description only.
    pub command: Vec<String>,
    /// Whether a replay runs beside the start, for the trace's description only.
    pub replayed: bool,
    /// For so long after the end nothing is looked up on other file systems than the root's: whoever waited
    /// for the command may unmount them at once, and is not to be told that they are busy. What is unmounted
    /// meanwhile is known all the same.
    pub patience: Duration,
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
    /// When no page was used for the first time and little CPU was spent for so long (or when the command
    /// ends).
    Quiet {
        /// How long, seconds.
        seconds: u64,
    },
    /// After so many seconds (or when the command ends).
    Seconds(u64),
}

impl Options {
    /// The buffer for a command. An event has 64 bytes and the buffer is drained 100 times a second: it holds
    /// the events of 17 ms at 1.9 million a second, as fast as two processors can make them,
    /// eight times the fastest start that was measured.
    pub const TREE_BUFFER_BYTES: usize = 2 << 20;

    /// The buffer for a boot, while the thread that drains it waits for the processor longer, and drains it
    /// less often: four times as much.
    pub const SYSTEM_BUFFER_BYTES: usize = 8 << 20;

    /// The [patience](Options::patience) where nobody waits for the trace: a script that unmounts what its
    /// command has used does so in some milliseconds, on a busy machine in some hundred.
    pub const PATIENCE: Duration = Duration::from_secs(1);

    /// The default limit.
    pub const LIMIT: Duration = Duration::from_secs(60);

    /// A recording of a command's own tree until it exits, with the defaults for everything else.
    pub fn tree(command: Vec<String>) -> Options {
        Options {
            scope: Scope::Tree,
            until: Until::Exit,
            buffer_bytes: Options::TREE_BUFFER_BYTES,
            command,
            ..Options::system()
        }
    }

    /// A recording of everything until it has been quiet for two seconds, with the defaults for everything
    /// else.
    pub fn system() -> Options {
        Options {
            scope: Scope::System,
            backend: BackendChoice::Auto,
            until: Until::Quiet { seconds: 2 },
            limit: Options::LIMIT,
            buffer_bytes: Options::SYSTEM_BUFFER_BYTES,
            early_instance: None,
            exclude_pids: Vec::new(),
            activity: false,
            command: Vec::new(),
            replayed: false,
            patience: Duration::ZERO,
        }
    }
}

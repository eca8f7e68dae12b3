//! A start → [`Trace`]: who ran, which pages of which files were used first and when, which paths were looked
//! up, and which metadata blocks had to be read.
//!
//! Two back-ends see the same things: BPF programs (cheap, with paths taken in the kernel) and a tracefs
//! instance (where BPF or BTF is missing). A thread of this crate drains whichever was chosen ten to a
//! hundred times a second and hands its events to a builder, which drops what is already known, so that
//! [`Recorder::finish`] has little left to do, and keeps no more than a trace may hold ([`limits`]).
//!
//! What is not seen: pages touched through mappings that were there before; paths opened by io_uring. In a
//! container (a pid namespace of its own) everybody are those in it. A process in another mount namespace is
//! followed by device and directory; only absolute paths it looks up are taken as if its mounts were the
//! recorder's. Of a file system that only it sees the image is recorded (BPF, a command's own tree).
//!
//! ```no_run
//! use headstart_record::{Options, Recorder};
//! use std::sync::atomic::AtomicBool;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut recorder = Recorder::start(&Options::tree(vec!["sleep".into(), "1".into()]))?;
//! let mut child = std::process::Command::new("sleep").arg("1").spawn()?; // better: stopped before its exec
//! recorder.add_root(child.id())?;
//! let reason = recorder.run_until(&AtomicBool::new(false), None, || {
//!     use std::os::unix::process::ExitStatusExt;
//!     child.try_wait().ok().flatten().map(|status| status.into_raw())
//! });
//! let trace = recorder.finish(reason)?;
//! # Ok(()) }
//! ```

mod continuous;
mod cpu;
mod error;
mod kernel;
mod limits;
mod namespace;
mod one_shot;
mod options;
mod quiet;
mod trace;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod zlib;

pub use continuous::watch::{Answer, Counts, Executable, Noticed, Program, Recorded, Role, Standing, Watch};
pub use error::RecordError;
pub use headstart_model::Trace;
pub use kernel::bpf::watched::tells_of_starts;
pub use kernel::clock::monotonic_ns;
pub use kernel::features::{Feature, Features, features};
pub use one_shot::recorder::Recorder;
pub use options::{BackendChoice, Options, Until};
pub use quiet::LITTLE_CPU;
pub use quiet::{Progress, Unrecorded};

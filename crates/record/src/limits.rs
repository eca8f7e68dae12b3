//! How much a recording keeps.
//!
//! Whatever anybody does on the machine, a recording keeps no more than the trace format takes
//! (`headstart_model::limits`), so that a trace that was recorded can be written. Page uses beyond a limit
//! are lost events, and the trace teaches nothing. Look-ups and metadata misses beyond theirs are left out
//! and counted apart ([`Lost::dropped`](headstart_model::trace::Lost)), and so is what users other than root
//! use beyond their share of a recording of everybody (`builder/shares.rs`): any user can look up a million
//! paths a second that nobody needs, and read as many pages, and must not keep a boot from being learned by
//! that.
//!
//! With all limits reached the tables take less than 96 MiB ([`BYTES`]); beside them are the kernel's
//! buffers, which count twice (12 MiB for a boot), and at the end the trace that is made of the tables (as
//! much again at most, since rows move, and files are the only ones that are copied). A recording of anything
//! stays below 256 MiB: tests/flood.rs and the builder's tests measure that. Where activity is asked for, it
//! takes 21 MiB more ([`ACTIVITY_BYTES`]).

use headstart_model::limits as format;

pub(crate) use format::{BLOCK_DEVICES, FILES, MAPPINGS, MISSES, PROCESSES, USES, WINDOWS};

/// The most look-ups. With the paths of files and executables, one of which may be empty, they are as many
/// paths as a trace takes.
pub(crate) const LOOKUPS: usize = format::PATHS - FILES - EXECUTABLES - 1;

/// The most bytes of the paths looked up, 50 for each: what those of a boot have.
pub(crate) const LOOKUP_BYTES: usize = 3 << 20;

/// The most different executables. A boot runs some hundreds.
pub(crate) const EXECUTABLES: usize = 4096;

/// The most bytes of their paths.
pub(crate) const EXECUTABLE_BYTES: usize = 1 << 20;

/// The most bytes of the paths of files, those through overlays among them: what the format leaves.
pub(crate) const FILE_BYTES: usize = format::PATH_BYTES - LOOKUP_BYTES - EXECUTABLE_BYTES;

/// The most bytes of executables' paths, each as often as a process runs it: what the format leaves.
pub(crate) const RUN_BYTES: usize = format::REFERRED_BYTES - FILE_BYTES - LOOKUP_BYTES;

/// The most file systems, and the most mounts that are gone and still known.
pub(crate) const FILESYSTEMS: usize = format::FILESYSTEMS;

/// The most names that a back-end may have for files: an inode that was evicted and read again has another.
pub(crate) const FILE_IDS: usize = 2 * FILES;

/// The most 64-page parts of files that are told apart. Dense they are 64 GiB; scattered reads stop at
/// [`WINDOWS`] before.
pub(crate) const CHUNKS: usize = 256 << 10;

/// The most requests to block devices: with [`SLICES`], at their longest, below `ACTV` of the format.
pub(crate) const REQUESTS: usize = 128 << 10;

/// The most slices of threads.
pub(crate) const SLICES: usize = 384 << 10;

/// The most samples of processors, and of memory: those of 27 minutes.
pub(crate) const SAMPLES: usize = 16 << 10;

/// What activity takes with its limits reached, bytes; besides [`BYTES`], and only where it is asked for.
pub(crate) const ACTIVITY_BYTES: usize = REQUESTS * 64 + SLICES * 32 + SAMPLES * 48 + BLOCK_DEVICES * 256;

const _: () = assert!(ACTIVITY_BYTES <= 21 << 20);
const _: () = assert!(REQUESTS * 20 + SLICES * 12 + SAMPLES * 25 + BLOCK_DEVICES * 84 <= format::ACTV);

/// What the tables take with all limits reached, bytes: each with its share of the map's empty places,
/// measured generously.
pub(crate) const BYTES: usize = FILES * 320
    + FILE_IDS * 40
    + CHUNKS * 72
    + MAPPINGS * 48
    + USES * 48
    + WINDOWS * 32
    + LOOKUPS * 128
    + MISSES * 48
    + PROCESSES * 160
    + FILE_BYTES
    + LOOKUP_BYTES
    + EXECUTABLE_BYTES;

const _: () = assert!(BYTES <= 96 << 20);

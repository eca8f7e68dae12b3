//! `headstart layout`, as it is called: `headstart-layout` does it, another program, so that this one cannot
//! move files.

use crate::context::Output;
use crate::options;

/// What `headstart layout` does.
const ABOUT: &str = "\
Move what starts read together on disk, in the order they read it.

A start takes as long as a disk's head jumps, or elsewhere as its requests take: what lies together is one. What headstart itself reads \
comes first, then what the keys need, in the order in which they are named and of its first use; a file that several need is \
moved once. Of large files only what is needed is moved. Where there is no room for all, or in too small pieces, what saves the most jumps for its bytes is.

It is done on a mounted file system while files are in use: their contents stay, and a crash leaves each in its old or in its new place. \
What was moved is read back from the disk and compared; pages that a program has mapped are compared in memory instead. It is done only where the cost model says that it is worth it, and on flash, which \
wears, once in 30 days at most, unless the last time was cut short. It is done at idle priority, and waits while others wait for the device or for memory. On ext4 all that is moved is written twice: first its \
room, so that what lies below (a thin volume, an image with holes) cannot be full while files move. Where that is known to have too little, nothing is moved; \
`plan` says how much is written, and how long it takes by what the device was measured to need.

Who executes a program while it is moved waits for that long. Who watches a file by inotify, as units with PathChanged= do, is told that it was written and closed. Programs that run are moved at the next shutdown, for a few seconds at most: \
headstart-layout.service does it, which `apply` starts when there are some. Files with several names, encrypted, immutable, or protected ones, swap files, modules, firmware, and \
what is kept inside an inode stay where they are, and are counted by reason. What no key needs any more, and was moved for one, \
is moved out of the way when the files of all keys are.";

/// Move what starts read together on disk, in the order they read it.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT)]
pub struct Args {
    #[command(subcommand)]
    /// What to do.
    pub what: What,
}

/// What is done.
#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// List the files in the order they would have, and where they lie now.
    Show(Of),
    /// Say what moving them would bring.
    Plan(Of),
    /// Move them, if it is worth it. Ctrl-C ends it between two extents with exit status 1, and the next
    /// time goes on from there.
    Apply {
        /// Whose.
        #[command(flatten)]
        of: Of,
        /// Move anew also what lies in order, and where it is not worth it.
        #[arg(long)]
        force: bool,
        /// The most that is moved in a second, such as 20M.
        #[arg(long, value_name = "SIZE", value_parser = options::rate)]
        rate: Option<u64>,
        /// Move programs that ran the last time, and nothing else; only while the machine shuts down, or
        /// with --force.
        #[arg(long)]
        at_shutdown: bool,
    },
    /// Say when files were moved last, where to, and what failed.
    Status(Output),
}

/// Whose starts, and how to print.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// For whose starts: `boot` or the keys of programs, in the order in which their files are to lie
    /// [default: all].
    #[arg(value_name = "KEY")]
    pub keys: Vec<String>,
    /// How to print.
    #[command(flatten)]
    pub output_form: Output,
}

//! A pipe by which a process that waits at a barrier is released, most often one that a parent left to this
//! process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileTypeExt;

/// The writing end. A word in it releases who waits; so does the end of this process, however it comes.
pub struct ReadyPipe(File);

impl ReadyPipe {
    /// The pipe that was left at this number. Call it once, before anything else may have opened a
    /// descriptor.
    pub fn inherited(number: i32) -> io::Result<ReadyPipe> {
        // SAFETY: asks and changes flags only; of a number that is no descriptor the kernel says so.
        if number < 3 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{number} is no descriptor that was left to this process"),
            ));
        }
        // SAFETY: it is open, and as nothing else was opened yet, nobody's in this process.
        ReadyPipe::new(unsafe { File::from_raw_fd(number) })
    }

    /// A pipe that this process has opened itself.
    pub fn new(pipe: File) -> io::Result<ReadyPipe> {
        if !pipe.metadata()?.file_type().is_fifo() {
            let what = format!("{pipe:?} is no pipe");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(ReadyPipe(pipe))
    }

    /// Asks who waits to wait on: for as long again as it would have waited from the first.
    pub fn wait_on(&mut self) {
        // As in `release`.
        let _ = self.0.write_all(b"w");
    }

    /// Releases who waits.
    pub fn release(mut self) {
        // If nobody listens any more, it has gone.
        let _ = self.0.write_all(b"g");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_pipe_is_taken_over_and_nothing_else() {
        let (wait, ready) = rustix::pipe::pipe().unwrap();
        let mut ready = ReadyPipe::inherited(ready.into_raw_fd()).unwrap();
        ready.wait_on();
        ready.release();
        let mut word = Vec::new();
        // To the end: the descriptor is closed.
        File::from(wait).read_to_end(&mut word).unwrap();
        assert_eq!(word, b"wg");
        assert!(ReadyPipe::inherited(0).is_err());
        assert!(ReadyPipe::inherited(1 << 20).is_err());
        let file = tempfile::tempfile().unwrap();
        assert!(ReadyPipe::inherited(file.into_raw_fd()).is_err());
    }
}

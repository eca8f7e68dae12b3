//! What the daemon and the guard tell each other: five numbers at a time, and maybe a file.

use super::Inode;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A word of one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The guard: this process is about to execute this file, and waits.
    Asked { id: u64, pid: u32, inode: Inode },
    /// The guard: the kernel does not ask (errno).
    Refused(i32),
    /// The guard was killed, and begins anew: who waited waits no more, and nothing is asked about.
    Anew,
    /// The daemon: the file that comes with it is to be asked about.
    AskAbout,
    /// The daemon: the file that comes with it is not to be asked about any more.
    AskNoMore,
    /// The daemon: it may wait on.
    Hold(u64),
    /// The daemon: it has waited long enough.
    LetGo(u64),
    /// The daemon: nothing is read ahead for it, and for what else executes that file right now.
    Leave(u64),
}

const NUMBERS: usize = 5;
const BYTES: usize = NUMBERS * 8;

impl Word {
    fn numbers(self) -> [u64; NUMBERS] {
        match self {
            Word::Asked { id, pid, inode } => [0, id, u64::from(pid), inode.0, inode.1],
            Word::Refused(errno) => [1, u64::from(errno.unsigned_abs()), 0, 0, 0],
            Word::AskAbout => [2, 0, 0, 0, 0],
            Word::Hold(id) => [3, id, 0, 0, 0],
            Word::LetGo(id) => [4, id, 0, 0, 0],
            Word::Leave(id) => [5, id, 0, 0, 0],
            Word::Anew => [6, 0, 0, 0, 0],
            Word::AskNoMore => [7, 0, 0, 0, 0],
        }
    }

    fn of(numbers: [u64; NUMBERS]) -> Option<Word> {
        Some(match numbers {
            [0, id, pid, device, inode] => Word::Asked {
                id,
                pid: u32::try_from(pid).ok()?,
                inode: (device, inode),
            },
            [1, errno, ..] => Word::Refused(i32::try_from(errno).ok()?),
            [2, ..] => Word::AskAbout,
            [3, id, ..] => Word::Hold(id),
            [4, id, ..] => Word::LetGo(id),
            [5, id, ..] => Word::Leave(id),
            [6, ..] => Word::Anew,
            [7, ..] => Word::AskNoMore,
            _ => return None,
        })
    }
}

/// Says it, without waiting: to who does not listen nothing is said.
pub(super) fn say(stream: &UnixStream, word: Word, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for (room, number) in bytes.chunks_exact_mut(8).zip(word.numbers()) {
        room.copy_from_slice(&number.to_ne_bytes());
    }
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let how = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(stream, &[IoSlice::new(&bytes)], &mut beside, how)? {
        BYTES => Ok(()),
        // The kernel takes so little whole or not at all.
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The next word, with its file; `None` if there is none now. Fails when the other is gone.
pub(super) fn hear(stream: &UnixStream) -> io::Result<Option<(Word, Option<OwnedFd>)>> {
    let mut bytes = [0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let how = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut beside, how) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut file = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.into_iter().next();
        }
    }
    if got != BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut numbers = [0; NUMBERS];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    match Word::of(numbers) {
        Some(word) => Ok(Some((word, file))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn words_arrive_as_they_were_said_with_their_files() {
        let (one, other) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let has_file = |word| matches!(word, Word::AskAbout | Word::AskNoMore);
        let asked = Word::Asked {
            id: 7,
            pid: 4711,
            inode: (u64::MAX, 12),
        };
        let words = [
            asked,
            Word::Refused(22),
            Word::AskAbout,
            Word::AskNoMore,
            Word::Anew,
            Word::Hold(1),
            Word::LetGo(u64::MAX),
            Word::Leave(3),
        ];
        for word in words {
            let sent = has_file(word).then(|| file.as_fd());
            say(&one, word, sent).unwrap();
        }
        for word in words {
            let (heard, file) = hear(&other).unwrap().unwrap();
            assert_eq!((heard, file.is_some()), (word, has_file(word)));
        }
        assert!(hear(&other).unwrap().is_none());
        drop(one);
        assert!(hear(&other).is_err());
    }

    #[test]
    fn nobody_waits_for_who_does_not_listen() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!((0..100_000).any(|id| say(&one, Word::Hold(id), None).is_err()));
    }
}

//! What the supervisor and the worker tell each other: a length, and so many bytes of postcard.

use headstart_model::Key;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// What the supervisor and the worker tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To the worker: the command's process, which waits at the barrier.
    Command(u32),
    /// To the worker: the command was released before the worker was ready; what it has done since was not
    /// seen.
    Ahead,
    /// To the worker: the command ended.
    Ended(Ended),
    /// To the worker: there never was a command, it could not be started.
    NotStarted,
    /// From a worker that decides: what was decided.
    Decided(Decided),
    /// From the worker: the command may go on; a line to print unless it is empty.
    Ready(String),
    /// From the worker: what the command is started for cannot be done; why.
    Refused(String),
    /// From the worker, once the command has ended: what was read ahead is closed, so that it can be
    /// unmounted.
    LetGo,
    /// From the worker: what was done, as a JSON document, where one is wanted.
    Document(String),
    /// From the worker: all is done; a line to print unless it is empty.
    Done(String),
    /// From the worker: what it was for failed; why.
    Failed(String),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its status, as wait(2) gives it.
    pub status: i32,
    /// CPU time that it and those of its children that it waited for used.
    pub cpu_ns: u64,
}

/// What was decided for a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Why nothing is done, where nothing is.
    pub bypass: Option<String>,
    /// Why nothing can be kept of it.
    pub unusable: Option<String>,
    /// Nothing can be kept, and nothing else would be done.
    pub in_vain: bool,
    /// Whose start it is, where it is a key's.
    pub key: Option<Key>,
    /// Pages that were looked at, and those of them in memory.
    pub resident: Option<(u64, u64)>,
}

impl Decided {
    /// Whether nothing is done beside the command, and nobody has to be told anything at its end.
    pub fn is_for_nothing(&self, document: bool) -> bool {
        !document && (self.bypass.is_some() || self.in_vain)
    }
}

/// Longer lines are cut, bytes: they are for a terminal.
const MAX_LINE: usize = 4096;

/// The longest message, bytes: a document, which is an outcome with some 500 bytes for each stage.
const MAX: usize = 1 << 20;

impl Message {
    /// With its line cut to [`MAX_LINE`].
    fn cut(mut self) -> Message {
        if let Message::Ready(line) | Message::Refused(line) | Message::Done(line) | Message::Failed(line) =
            &mut self
        {
            if line.len() > MAX_LINE {
                let end = (0..=MAX_LINE).rev().find(|at| line.is_char_boundary(*at));
                line.truncate(end.unwrap_or(0));
            }
        }
        self
    }
}

/// Sends a message.
pub fn send(mut stream: &UnixStream, message: Message) -> io::Result<()> {
    let payload = postcard::to_stdvec(&message.cut()).map_err(io::Error::other)?;
    if payload.len() > MAX {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&payload);
    stream.write_all(&bytes)
}

/// Waits for a message; an error also when the other side is gone.
pub fn receive(mut stream: &UnixStream) -> io::Result<Message> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    postcard::from_bytes(&payload).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        let messages = [
            Message::Command(7),
            Message::Ahead,
            Message::Ended(Ended {
                status: -1,
                cpu_ns: u64::MAX,
            }),
            Message::NotStarted,
            Message::Decided(Decided {
                bypass: Some("no".into()),
                key: Key::new("k").ok(),
                resident: Some((1, 2)),
                ..Decided::default()
            }),
            Message::Ready(String::new()),
            Message::Refused("no".into()),
            Message::Document("z".repeat(MAX_LINE + 1)),
            Message::Failed("x".into()),
        ];
        for message in &messages {
            send(&a, message.clone()).unwrap();
        }
        send(&a, Message::Done("y".repeat(MAX_LINE + 1))).unwrap();
        for message in &messages {
            assert_eq!(receive(&b).unwrap(), *message);
        }
        assert_eq!(receive(&b).unwrap(), Message::Done("y".repeat(MAX_LINE)));
        drop(a);
        assert!(receive(&b).is_err());
    }

    #[test]
    fn a_message_of_an_absurd_length_is_refused_before_it_is_read() {
        let (a, b) = UnixStream::pair().unwrap();
        (&a).write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(receive(&b).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

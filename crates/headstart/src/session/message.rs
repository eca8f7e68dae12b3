//! What headstart and its helper tell each other: a tag, a length, a text or number.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// What headstart and its helper tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the helper: the command's process, held.
    Command(u32),
    /// To the helper: the command ended.
    Ended(Ended),
    /// To the helper: there never was a command, it could not be started.
    NotStarted,
    /// From the helper: the command may go on; a line to print unless it is empty.
    Ready(String),
    /// From the helper: what the command is started for cannot be done; why.
    Refused(String),
    /// From the helper: what was done, as a JSON document, where one is wanted.
    Document(String),
    /// From the helper: all is done; a line to print unless it is empty.
    Done(String),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its status, as wait(2) gives it.
    pub status: i32,
    /// CPU time that it and those of its children that it waited for used.
    pub cpu_ns: u64,
}

/// Longer lines are cut: they are for a terminal.
const MAX_TEXT: usize = 4096;

/// The longest document: an outcome has some 500 bytes for each stage.
const MAX_DOCUMENT: usize = 1 << 20;

/// The longest payload of a message.
fn most(tag: u8) -> usize {
    match tag {
        b'J' => MAX_DOCUMENT,
        _ => MAX_TEXT,
    }
}

/// Sends a message.
pub fn send(mut stream: &UnixStream, message: &Message) -> io::Result<()> {
    let (tag, payload): (u8, Vec<u8>) = match message {
        Message::Command(pid) => (b'C', pid.to_le_bytes().to_vec()),
        Message::Ended(ended) => (
            b'E',
            [&ended.status.to_le_bytes()[..], &ended.cpu_ns.to_le_bytes()[..]].concat(),
        ),
        Message::NotStarted => (b'N', Vec::new()),
        Message::Ready(text) => (b'R', text.clone().into_bytes()),
        Message::Refused(text) => (b'F', text.clone().into_bytes()),
        Message::Document(text) => (b'J', text.clone().into_bytes()),
        Message::Done(text) => (b'D', text.clone().into_bytes()),
    };
    let payload = &payload[..payload.len().min(most(tag))];
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes)
}

/// Waits for a message; an error also when the other side is gone.
pub fn receive(mut stream: &UnixStream) -> io::Result<Message> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [tag, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > most(tag) {
        return Err(bad());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    let number = |at| {
        payload
            .get(at..at + 4)
            .and_then(|n| n.try_into().ok())
            .ok_or_else(bad)
    };
    let long = |at| {
        payload
            .get(at..at + 8)
            .and_then(|n| n.try_into().ok())
            .ok_or_else(bad)
    };
    let text = || String::from_utf8_lossy(&payload).into_owned();
    Ok(match tag {
        b'C' => Message::Command(u32::from_le_bytes(number(0)?)),
        b'E' => Message::Ended(Ended {
            status: i32::from_le_bytes(number(0)?),
            cpu_ns: u64::from_le_bytes(long(4)?),
        }),
        b'N' => Message::NotStarted,
        b'R' => Message::Ready(text()),
        b'F' => Message::Refused(text()),
        b'J' => Message::Document(text()),
        b'D' => Message::Done(text()),
        _ => return Err(bad()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        let all = [
            Message::Command(7),
            Message::Ended(Ended {
                status: -1,
                cpu_ns: u64::MAX,
            }),
            Message::NotStarted,
            Message::Ready(String::new()),
            Message::Refused("no".into()),
            Message::Document("z".repeat(MAX_TEXT + 1)),
            Message::Done("x".into()),
        ];
        for message in &all {
            send(&a, message).unwrap();
        }
        send(&a, &Message::Done("y".repeat(MAX_TEXT + 1))).unwrap();
        for message in &all {
            assert_eq!(receive(&b).unwrap(), *message);
        }
        assert!(matches!(receive(&b).unwrap(), Message::Done(text) if text.len() == MAX_TEXT));
        drop(a);
        assert!(receive(&b).is_err());
    }
}

//! As much of the D-Bus protocol as it takes to ask systemd two kinds of questions over its private socket,
//! which is there from the first instant, before any bus: method calls with texts, answered by a text, number
//! or path.
//!
//! <https://dbus.freedesktop.org/doc/dbus-specification.html>; little-endian messages, as this side says and
//! systemd answers in its own order, which is read as it comes.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// systemd's private socket: root only.
const SOCKET: &str = "/run/systemd/private";
/// systemd answers at once or is in trouble: then the boot is not kept waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer asked for here is as long.
const MAX_MESSAGE: usize = 1 << 20;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Errors by which systemd refuses to answer, as SELinux has it do.
const REFUSALS: [&[u8]; 2] = [
    b"org.freedesktop.DBus.Error.AccessDenied",
    b"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
];

/// A connection.
pub struct Bus {
    stream: UnixStream,
    serial: u32,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `t` or `u`.
    Number(u64),
    /// `s` or `o`.
    Text(String),
}

impl Bus {
    /// Connects, as who this process is.
    pub fn connect() -> io::Result<Bus> {
        let stream = UnixStream::connect(SOCKET)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut bus = Bus { stream, serial: 0 };
        bus.authenticate()?;
        Ok(bus)
    }

    /// To wait for what comes.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn authenticate(&mut self) -> io::Result<()> {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        // In one piece: of a message that comes together with BEGIN systemd takes no notice until there is
        // more to read.
        self.stream
            .write_all(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").as_bytes())?;
        let mut line = Vec::new();
        // Byte by byte: what follows the line is of the next message.
        while !line.ends_with(b"\r\n") && line.len() < 256 {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.extend(byte);
        }
        if !line.starts_with(b"OK ") {
            let why = "systemd does not let this process in";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(())
    }

    /// Calls a method with texts; its answer, or the text of the error that systemd answers with, as for a
    /// unit that is not loaded. That it refuses to answer this process is an error of its own: it will not
    /// answer later either, and may log each question.
    pub fn call(
        &mut self,
        path: &str,
        interface: &str,
        member: &str,
        arguments: &[&str],
    ) -> io::Result<Result<Value, String>> {
        self.serial += 1;
        self.stream
            .write_all(&message(self.serial, path, interface, member, arguments))?;
        loop {
            let mut head = [0; 16];
            self.stream.read_exact(&mut head)?;
            let big = head[0] == b'B';
            let (body, fields) = (number(&head[4..8], big)?, number(&head[12..16], big)?);
            let (body, fields) = (body as usize, (fields as usize).next_multiple_of(8));
            if body > MAX_MESSAGE || fields > MAX_MESSAGE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut rest = vec![0; fields + body];
            self.stream.read_exact(&mut rest)?;
            match head[1] {
                METHOD_RETURN => return value(&rest[fields..], field(&rest[..fields], 8), big).map(Ok),
                ERROR => {
                    let why = match value(&rest[fields..], b"s", big) {
                        Ok(Value::Text(text)) => text,
                        _ => "it does not say why".into(),
                    };
                    return match REFUSALS.contains(&field(&rest[..fields], 4)) {
                        true => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
                        false => Ok(Err(why)),
                    };
                }
                // Signals are not for this process.
                _ => {}
            }
        }
    }
}

/// A method call. Every call waits for its answer, so serials need not be compared.
fn message(serial: u32, path: &str, interface: &str, member: &str, arguments: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for argument in arguments {
        put_text(&mut body, argument);
    }
    let mut fields = Vec::new();
    for (code, kind, text) in [(1, b'o', path), (2, b's', interface), (3, b's', member)] {
        pad(&mut fields, 8);
        fields.extend([code, 1, kind, 0]);
        put_text(&mut fields, text);
    }
    if !arguments.is_empty() {
        pad(&mut fields, 8);
        fields.extend([8, 1, b'g', 0, arguments.len() as u8]);
        fields.extend(std::iter::repeat_n(b's', arguments.len()));
        fields.push(0);
    }
    let mut message = vec![b'l', METHOD_CALL, 0, 1];
    message.extend((body.len() as u32).to_le_bytes());
    message.extend(serial.to_le_bytes());
    message.extend((fields.len() as u32).to_le_bytes());
    message.extend(fields);
    pad(&mut message, 8);
    message.extend(body);
    message
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn number(bytes: &[u8], big: bool) -> io::Result<u64> {
    let mut word = [0; 8];
    let (read, zero) = (bytes.len(), 8 - bytes.len().min(8));
    if read > 8 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if big {
        word[zero..].copy_from_slice(bytes);
        Ok(u64::from_be_bytes(word))
    } else {
        word[..read].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }
}

/// A text of the header: 8 is the type of the body, 4 an error's name. Fields are found by walking, for each
/// has its own length.
fn field(fields: &[u8], wanted: u8) -> &[u8] {
    let mut at = 0;
    while let Some([code, 1, kind, 0]) = fields.get(at..at + 4) {
        at += 4;
        let (before, length) = match kind {
            b'g' => (1, usize::from(fields.get(at).copied().unwrap_or(0))),
            b'u' => (4, 0),
            // The length of a text is in the sender's order; the lower of the two readings is right for short
            // texts.
            _ => {
                let Some(bytes) = fields.get(at..at + 4) else {
                    break;
                };
                let reading = |big| number(bytes, big).unwrap_or(u64::MAX);
                (4, reading(false).min(reading(true)) as usize)
            }
        };
        at += before;
        if *code == wanted {
            return fields.get(at..at + length).unwrap_or_default();
        }
        // A text ends with a null character.
        let end = if *kind == b'u' { 0 } else { length + 1 };
        at = (at + end).next_multiple_of(8);
    }
    &[]
}

fn value(body: &[u8], kind: &[u8], big: bool) -> io::Result<Value> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let part = |at: usize, length: usize| body.get(at..at + length).ok_or_else(bad);
    // A variant brings its own type.
    let (kind, at) = match kind {
        b"v" => {
            let length = usize::from(*body.first().ok_or_else(bad)?);
            (part(1, length)?, length + 2)
        }
        kind => (kind, 0),
    };
    match kind {
        b"t" => Ok(Value::Number(number(part(at.next_multiple_of(8), 8)?, big)?)),
        b"u" => Ok(Value::Number(number(part(at.next_multiple_of(4), 4)?, big)?)),
        b"s" | b"o" => {
            let at = at.next_multiple_of(4);
            let length = number(part(at, 4)?, big)? as usize;
            let text = part(at + 4, length)?;
            Ok(Value::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_form_that_the_specification_gives() {
        let bytes = message(7, "/a", "b.c", "Get", &["x"]);
        assert_eq!(&bytes[..4], b"l\x01\0\x01");
        assert_eq!(
            number(&bytes[4..8], false).unwrap(),
            6,
            "the body: length, x, NUL"
        );
        let fields = number(&bytes[12..16], false).unwrap() as usize;
        assert_eq!(field(&bytes[16..16 + fields], 8), b"s");
        assert_eq!(bytes.len(), 16 + fields.next_multiple_of(8) + 6);
    }

    #[test]
    fn answers_are_read_and_nonsense_is_not() {
        let number = [&[1, b't', 0, 0, 0, 0, 0, 0][..], &5u64.to_le_bytes()].concat();
        assert_eq!(value(&number, b"v", false).unwrap(), Value::Number(5));
        let number = [&[1, b't', 0, 0, 0, 0, 0, 0][..], &5u64.to_be_bytes()].concat();
        assert_eq!(value(&number, b"v", true).unwrap(), Value::Number(5));
        let text = b"\x02\0\0\0/a\0";
        assert_eq!(value(text, b"o", false).unwrap(), Value::Text("/a".into()));
        for bad in [&b""[..], b"\x09", b"\x01t\0", b"\xff\xff\xff\xffx"] {
            assert!(value(bad, b"v", false).is_err() && value(bad, b"s", false).is_err());
        }
        assert_eq!(field(b"\x05\x01u\0\x01", 8), b"");
        assert_eq!(field(b"\x07\x01s\0\xff\xff\xff\xff", 8), b"");
    }

    /// systemd's side of a connection, which answers each question with this error.
    fn answered_with(error: &str, text: &str) -> io::Result<Result<Value, String>> {
        let (stream, mut systemd) = UnixStream::pair().unwrap();
        let mut fields = vec![5, 1, b'u', 0, 1, 0, 0, 0, 4, 1, b's', 0];
        put_text(&mut fields, error);
        pad(&mut fields, 8);
        fields.extend([8, 1, b'g', 0, 1, b's', 0]);
        let mut body = Vec::new();
        put_text(&mut body, text);
        let mut message = vec![b'l', ERROR, 0, 1];
        message.extend((body.len() as u32).to_le_bytes());
        message.extend(1u32.to_le_bytes());
        message.extend((fields.len() as u32).to_le_bytes());
        message.extend(fields);
        pad(&mut message, 8);
        message.extend(body);
        systemd.write_all(&message).unwrap();
        Bus { stream, serial: 0 }.call("/a", "b.c", "Get", &[])
    }

    #[test]
    fn that_systemd_refuses_to_answer_is_no_answer() {
        let why = "SELinux policy denies access: Permission denied";
        let refused = answered_with("org.freedesktop.DBus.Error.AccessDenied", why).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(refused.to_string(), why);
        let unknown = answered_with(
            "org.freedesktop.systemd1.NoSuchUnit",
            "Unit a.service not loaded.",
        );
        assert_eq!(unknown.unwrap(), Err("Unit a.service not loaded.".into()));
    }
}

//! Lines for people and programs, put together without memory of their own.

use crate::bare::call;
use crate::syscall;

/// Bytes of a line at most; what is longer is cut off.
const LONGEST: usize = 1024;
/// Bytes of a file's line that are shown at most.
const SHOWN: usize = 60;

/// A part of a line.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// As it is, but for control characters.
    Text(&'a [u8]),
    /// The beginning of a line of a file, between quotation marks.
    Quoted(&'a [u8]),
    /// In decimal digits.
    Number(u64),
    /// The same, of three digits.
    Thousandths(u64),
}

/// A line in the making.
pub struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    /// An empty one.
    pub fn new() -> Line {
        Line {
            bytes: [0; LONGEST],
            length: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn shown(&mut self, text: &[u8]) {
        for byte in text {
            // A name from elsewhere is not to write to a terminal as it likes.
            self.push(match byte {
                0..9 | 11..32 | 127 => b'?',
                other => *other,
            });
        }
    }

    fn digits(&mut self, number: u64, least: usize) {
        let mut digits = [b'0'; 20];
        let (mut rest, mut count) = (number, 0);
        for place in digits.iter_mut().rev() {
            if rest == 0 && count >= least {
                break;
            }
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
        }
        self.shown(digits.get(20 - count..).unwrap_or_default());
    }

    /// Adds a part.
    pub fn add(&mut self, part: Part<'_>) {
        match part {
            Part::Text(text) => self.shown(text),
            Part::Quoted(text) => {
                self.push(b'"');
                self.shown(text.get(..SHOWN).unwrap_or(text));
                self.push(b'"');
            }
            Part::Number(number) => self.digits(number, 1),
            Part::Thousandths(number) => self.digits(number, 3),
        }
    }

    /// Writes it. Without such a descriptor nobody is told.
    pub fn write(&mut self, descriptor: usize) {
        if self.length == LONGEST {
            self.length -= 1;
            self.push(b'\n');
        }
        let place = self.bytes.as_ptr() as usize;
        // SAFETY: as many bytes as were put there.
        unsafe { call(syscall::WRITE, [descriptor, place, self.length, 0, 0]) };
    }
}

/// Tells of an error.
pub fn error(parts: &[Part<'_>]) {
    let mut line = Line::new();
    line.add(Part::Text(b"headstart: "));
    for part in parts {
        line.add(*part);
    }
    line.add(Part::Text(b"\n"));
    line.write(2);
}

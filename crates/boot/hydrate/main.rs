//! `headstart-hydrate`, what `headstart hydrate` executes and what runs in an initramfs: it touches the
//! ranges of a list (headstart-ranges(5)) on a volume that is filled as it is read, so that the volume
//! fetches them before the boot asks for them.
//!
//! `headstart-hydrate [--json] [--seconds N] FILE DEVICE`. Exit status: 0 done, also where the time was up; 1
//! could not; 2 wrong usage.
//!
//! A program of its own, without a library, as `headstart-init` is: an initramfs is read before anything is
//! fetched, and this is some pages. Its reads go past the page cache, each by a process of its own
//! (`workers`): no kernel is too old or too locked down for that, and a read that does not come back keeps
//! nobody from ending.

#![no_std]
#![no_main]

#[path = "../init/bare.rs"]
mod bare;
mod memory;
mod say;
#[path = "../init/syscall.rs"]
mod syscall;
mod system;
#[path = "../../model/src/range_list/text.rs"]
mod text;
#[path = "../../model/src/range_list/touches.rs"]
mod touches;
mod workers;

use core::ffi::{CStr, c_char};
use say::{Line, Part};
use system::{end, map};
use text::{Check, MOST_BYTES, MOST_CHECKS, MOST_RANGES, Span, Volume};
use touches::{MOST_TOUCHES, Touch};

/// How long it works without `--seconds`.
const SECONDS: u64 = 30;
/// The most of `--seconds`.
const MOST_SECONDS: u64 = 3600;
/// What helps where a list does not fit.
pub const ANEW: &str = "; make the list anew by `headstart plan --ranges-of`";
const USAGE: &str = "usage: headstart-hydrate [--json] [--seconds N] FILE DEVICE, N from 1 to 3600";

/// What the command line says.
struct Arguments {
    json: bool,
    seconds: u64,
    list: &'static CStr,
    device: &'static CStr,
}

/// A list in memory, and what is made of it.
struct List {
    /// The file; one byte more shows that it is too large.
    text: [u8; MOST_BYTES + 1],
    checks: [Check; MOST_CHECKS],
    ranges: [Span; MOST_RANGES],
    sorted: [Span; MOST_RANGES],
    touches: [Touch; MOST_TOUCHES],
}

/// Where the kernel put the arguments.
///
/// # Safety
/// `stack` is the stack pointer at the entry of a process.
pub(crate) unsafe extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: their number, then the arguments: the layout of every process.
    let (count, arguments) = unsafe { (*stack, stack.add(1).cast::<*const c_char>()) };
    // SAFETY: as many strings as there are said to be, which stay where they are.
    let words = (1..count).map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) });
    let Some(arguments) = parse(words) else {
        say::error(&[Part::Text(USAGE.as_bytes())]);
        end(2)
    };
    hydrate(&arguments)
}

fn parse(words: impl Iterator<Item = &'static CStr>) -> Option<Arguments> {
    let mut arguments = Arguments {
        json: false,
        seconds: SECONDS,
        list: c"",
        device: c"",
    };
    let (mut paths, mut options, mut is_seconds) = (0, true, false);
    for word in words {
        let bytes = word.to_bytes();
        if is_seconds {
            let seconds = text::count(Some(bytes));
            arguments.seconds = seconds.filter(|it| (1..=MOST_SECONDS).contains(it))?;
            is_seconds = false;
        } else if options && bytes == b"--json" {
            arguments.json = true;
        } else if options && bytes == b"--seconds" {
            is_seconds = true;
        } else if options && bytes == b"--" {
            options = false;
        } else if options && bytes.first() == Some(&b'-') {
            return None;
        } else {
            match paths {
                0 => arguments.list = word,
                1 => arguments.device = word,
                _ => return None,
            }
            paths += 1;
        }
    }
    (paths == 2 && !is_seconds).then_some(arguments)
}

fn hydrate(arguments: &Arguments) -> ! {
    let begun_ms = system::now_ms();
    let list_name = Part::Text(arguments.list.to_bytes());
    let device_name = Part::Text(arguments.device.to_bytes());
    let fail = |parts: &[Part<'_>]| -> ! {
        say::error(parts);
        end(1)
    };
    let Some(list) = map::<List>() else {
        fail(&[Part::Text(b"no memory for a range list of 64 MiB")])
    };
    let text = match system::read_file(arguments.list, &mut list.text) {
        Ok(text) if text.len() <= MOST_BYTES => text,
        Ok(_) => fail(&[
            list_name,
            Part::Text(b": more than "),
            Part::Number(MOST_BYTES as u64),
            Part::Text(b" bytes, which no range list has"),
            Part::Text(ANEW.as_bytes()),
        ]),
        Err(why) => fail(&[list_name, Part::Text(b": "), why.part()]),
    };
    let read = match text::read(text, &mut list.checks, &mut list.ranges) {
        Ok(read) => read,
        Err(wrong) => fail(&[
            list_name,
            Part::Text(b": line "),
            Part::Number(wrong.line as u64),
            Part::Text(b": "),
            Part::Text(wrong.what.as_bytes()),
            Part::Text(b": "),
            Part::Quoted(
                text.split(|byte| *byte == b'\n')
                    .nth(wrong.line - 1)
                    .unwrap_or_default(),
            ),
            Part::Text(ANEW.as_bytes()),
        ]),
    };
    let ranges = list.ranges.get(..read.ranges).unwrap_or_default();
    let sorted = list.sorted.get_mut(..read.ranges).unwrap_or_default();
    sorted.copy_from_slice(ranges);
    if let Some([one, other]) = text::overlap(sorted) {
        fail(&[
            list_name,
            Part::Text(b": the ranges at "),
            Part::Number(one.start),
            Part::Text(b" and "),
            Part::Number(other.start),
            Part::Text(b" overlap"),
            Part::Text(ANEW.as_bytes()),
        ])
    }
    let Volume { size, block, uuid } = read.volume;
    let device = match system::open_device(arguments.device) {
        Ok(device) => device,
        Err(why) => fail(&[device_name, Part::Text(b": "), why.part()]),
    };
    if device.size != size {
        fail(&[
            device_name,
            Part::Text(b": "),
            Part::Number(device.size),
            Part::Text(b" bytes, and "),
            list_name,
            Part::Text(b" is of a device of "),
            Part::Number(size),
            Part::Text(ANEW.as_bytes()),
        ])
    }
    let count = touches::touches(ranges, &mut list.touches);
    let work = workers::Work {
        device: device.descriptor,
        block: block as usize,
        uuid,
        checks: list.checks.get(..read.checks).unwrap_or_default(),
        touches: list.touches.get(..count).unwrap_or_default(),
    };
    let until_ms = begun_ms.saturating_add(arguments.seconds.saturating_mul(1000));
    let done = match work.run(until_ms) {
        Ok(done) => done,
        Err(workers::Failed::NoProcess) => fail(&[Part::Text(b"no process can be started")]),
        Err(workers::Failed::OtherFileSystem) => fail(&[
            device_name,
            Part::Text(b": the file system on it has not the UUID in "),
            list_name,
            Part::Text(ANEW.as_bytes()),
        ]),
        Err(workers::Failed::OtherContents { offset }) => fail(&[
            device_name,
            Part::Text(b": the bytes at "),
            Part::Number(offset),
            Part::Text(b" are not those that "),
            list_name,
            Part::Text(b" was made of"),
            Part::Text(ANEW.as_bytes()),
        ]),
        Err(workers::Failed::Unreadable { errors, errno }) => fail(&[
            device_name,
            Part::Text(b": "),
            Part::Number(errors),
            Part::Text(b" reads failed, the last with error number "),
            Part::Number(errno),
        ]),
    };
    let ms = system::now_ms().saturating_sub(begun_ms);
    let mut line = Line::new();
    report(&mut line, arguments.json, device_name, count as u64, &done, ms);
    line.write(1);
    end(0)
}

/// What was done, in one line.
fn report(line: &mut Line, json: bool, device: Part<'_>, touches: u64, done: &workers::Done, ms: u64) {
    let seconds = [
        Part::Number(ms / 1000),
        Part::Text(b"."),
        Part::Thousandths(ms % 1000),
    ];
    let parts: &[Part<'_>] = match json {
        true => &[
            Part::Text(b"{\"blocks\":"),
            Part::Number(touches),
            Part::Text(b",\"read\":"),
            Part::Number(done.read),
            Part::Text(b",\"waited_for\":"),
            Part::Number(done.slow),
            Part::Text(b",\"bytes\":"),
            Part::Number(done.bytes),
            Part::Text(b",\"seconds\":"),
            seconds[0],
            seconds[1],
            seconds[2],
            Part::Text(b",\"end\":\""),
            Part::Text(done.end.name().as_bytes()),
            Part::Text(b"\"}"),
        ],
        false => &[
            device,
            Part::Text(b": "),
            Part::Number(done.read),
            Part::Text(b" of "),
            Part::Number(touches),
            Part::Text(b" blocks touched in "),
            seconds[0],
            seconds[1],
            seconds[2],
            Part::Text(b" s, "),
            Part::Number(done.slow),
            Part::Text(b" of them waited for; "),
            Part::Text(done.end.text().as_bytes()),
        ],
    };
    for part in parts {
        line.add(*part);
    }
    line.add(Part::Text(b"\n"));
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    end(1)
}

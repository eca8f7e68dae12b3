//! What block devices are given to read, by anybody, from the kernel's own events: a trace instance of its own.

use super::buffers::{Buffers, dropped_events};
use super::dir::{Instance, open_root};
use super::format::{Field, Format};
use super::page::{Damaged, PageLayout};
use crate::error::RecordError;
use headstart_model::blocks::{BlockRead, SECTOR};
use headstart_model::limits;
use headstart_model::machine::ByteRange;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const ISSUED: &str = "block/block_rq_issue";
/// Bytes of the processors' buffers: an event takes some 80, so that each holds those of some seconds of a fast device.
const BUFFERS: usize = 4 << 20;
/// The kernel's own device numbers have so many bits of minor number.
const MINOR_BITS: u32 = 20;
/// Pages of a processor that are read before the next one's turn.
const PAGES_AT_ONCE: usize = 1024;

/// Reads that block devices are given, from [`BlockReads::start`] to [`BlockReads::finish`].
pub struct BlockReads {
    // Before the instance, which cannot be removed while they are open.
    cpus: Vec<(String, OwnedFd)>,
    instance: Instance,
    pages: PageLayout,
    shape: Shape,
    found: Vec<(u64, BlockRead)>,
    missed: u64,
}

/// Where the parts of an event are.
#[derive(Debug)]
struct Shape {
    id: u64,
    kind: Field,
    device: Field,
    sector: Field,
    sectors: Field,
    what: Field,
}

impl Shape {
    fn new(format: &Format) -> Option<Shape> {
        Some(Shape {
            id: format.id?.into(),
            kind: format.field("common_type")?,
            device: format.field("dev")?,
            sector: format.field("sector")?,
            sectors: format.field("nr_sector")?,
            what: format.field("rwbs")?,
        })
    }

    /// The read that an event tells of; `None` if it tells of something else.
    fn read(&self, event: &[u8]) -> Option<BlockRead> {
        if self.kind.number(event)? != self.id || !self.what.bytes(event)?.contains(&b'R') {
            return None;
        }
        let device = self.device.number(event)?;
        let length = self.sectors.number(event)?.saturating_mul(SECTOR);
        (length > 0).then_some(BlockRead {
            major: (device >> MINOR_BITS) as u32,
            minor: (device & ((1 << MINOR_BITS) - 1)) as u32,
            range: ByteRange {
                start: self.sector.number(event)?.saturating_mul(SECTOR),
                length,
            },
            issued_ns: None,
            completed_ns: None,
            by_start: None,
        })
    }
}

impl BlockReads {
    /// Begins. Needs what the tracefs back-end needs.
    pub fn start() -> Result<BlockReads, RecordError> {
        let instance = Instance::create(&open_root()?)?;
        Buffers::size(&instance, BUFFERS)?;
        instance.write("tracing_on", "0")?;
        // A full buffer keeps what it has, and says that it lost something.
        instance.write("options/overwrite", "0")?;
        let unsupported = |feature: &str| RecordError::Unsupported {
            backend: "tracefs",
            feature: feature.into(),
            way_out: "record with blktrace, and give its files",
        };
        let format = instance.read(&format!("events/{ISSUED}/format"));
        let shape = format.ok().and_then(|text| Shape::new(&Format::parse(&text)));
        let shape = shape.ok_or_else(|| unsupported("it does not tell of requests to block devices"))?;
        let pages = PageLayout::new(&Format::parse(&instance.read("events/header_page")?))
            .ok_or_else(|| unsupported("its pages of events are of an unknown form"))?;
        instance.write(&format!("events/{ISSUED}/enable"), "1")?;
        let cpus = instance.list("per_cpu")?.into_iter().map(|name| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let pipe = instance.open(&format!("per_cpu/{name}/trace_pipe_raw"), flags)?;
            Ok((name, pipe))
        });
        let cpus = cpus.collect::<Result<_, RecordError>>()?;
        instance.write("tracing_on", "1")?;
        Ok(BlockReads {
            cpus,
            instance,
            pages,
            shape,
            found: Vec::new(),
            missed: 0,
        })
    }

    /// Takes what there is; to be called some times a second.
    pub fn drain(&mut self) -> Result<(), RecordError> {
        let mut buffer = vec![0; self.pages.page_bytes()];
        for (name, pipe) in &self.cpus {
            for _ in 0..PAGES_AT_ONCE {
                let bytes = match rustix::io::read(pipe, &mut buffer[..]) {
                    // As `Buffers::read` has it.
                    Ok(0) | Err(Errno::AGAIN | Errno::NODEV) => break,
                    Err(Errno::INTR) => continue,
                    Ok(length) => &buffer[..length],
                    Err(error) => return Err(RecordError::io(format!("read the events of {name}"), error)),
                };
                let Ok(page) = self.pages.page(bytes) else {
                    self.missed += 1;
                    continue;
                };
                for event in page.events {
                    match event {
                        // What has no room is lost.
                        Ok(_) if self.found.len() >= limits::BLKTRACE_EVENTS => self.missed += 1,
                        Ok((time, event)) => {
                            self.found.extend(self.shape.read(event).map(|read| (time, read)))
                        }
                        Err(Damaged) => self.missed += 1,
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends: the reads in the order in which they were given, and how many events were lost.
    pub fn finish(mut self) -> Result<(Vec<BlockRead>, u64), RecordError> {
        self.instance.write("tracing_on", "0")?;
        self.drain()?;
        let mut lost = self.missed;
        for (name, _) in &self.cpus {
            lost += dropped_events(&self.instance.read(&format!("per_cpu/{name}/stats"))?);
        }
        self.found.sort_by_key(|(time, _)| *time);
        Ok((self.found.drain(..).map(|(_, read)| read).collect(), lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue\nID: 1200\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n";

    fn event(what: &[u8], sectors: u32) -> Vec<u8> {
        let mut event = vec![0; 40];
        event[..2].copy_from_slice(&1200u16.to_ne_bytes());
        event[8..12].copy_from_slice(&(7u32 << 20 | 3).to_ne_bytes());
        event[16..24].copy_from_slice(&2048u64.to_ne_bytes());
        event[24..28].copy_from_slice(&sectors.to_ne_bytes());
        event[28..28 + what.len()].copy_from_slice(what);
        event
    }

    #[test]
    fn reads_are_told_from_all_else() {
        let shape = Shape::new(&Format::parse(FORMAT)).unwrap();
        let read = shape.read(&event(b"RAM", 8)).unwrap();
        assert_eq!((read.major, read.minor), (7, 3));
        assert_eq!((read.range.start, read.range.length), (1 << 20, 4096));
        for (what, sectors) in [(&b"W"[..], 8), (b"FF", 0), (b"D", 8), (b"R", 0)] {
            assert_eq!(shape.read(&event(what, sectors)), None);
        }
        let whole = event(b"R", 8);
        for length in 0..37 {
            assert_eq!(shape.read(&whole[..length]), None, "cut off");
        }
        let mut other = whole.clone();
        other[0] ^= 1;
        assert_eq!(shape.read(&other), None, "another event");
    }
}

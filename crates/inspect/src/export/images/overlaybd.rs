//! overlaybd's trace of reads, which its acceleration layer replays (`TraceHeader` and `TraceFormat` in
//! overlaybd's src/prefetch.cpp), and the index of a layer, which says what of a device it holds
//! (`HeaderTrailer` in src/overlaybd/lsmt/file.cpp, `SegmentMapping` in index.h).

use super::crc32c::crc32c;
use super::{ImageFile, Places, u32_at, u64_at};
use std::ops::Range;

/// CRC-32 of `Container Image Trace Format`.
const TRACE: u32 = 3_270_449_184;
const RECORD: usize = 24;
/// What overlaybd reads at most at once: it has a buffer of this size.
const READ: u64 = 1 << 20;
const SECTOR: u64 = 512;
const HEAD: u64 = 4096;
const MAGIC: &[u8] = b"LSMT\0\x01\x02\0\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a";
const ZFILE: &[u8] = b"ZFile\0\x01\0";
const IS_HEADER: u32 = 1;
const IS_DATA: u32 = 2;
const IS_SEALED: u32 = 4;
const SEGMENT: usize = 16;

/// Segments of all layers together: overlaybd takes a million of each; an image of some GB has some ten
/// thousand.
const SEGMENTS: u64 = 500_000;
/// Reads of a trace: 1 MiB each where data is contiguous.
const RECORDS: usize = 500_000;
/// Segments and layers that are looked at: a tenth of a second. Files of a hostile image may share their
/// data.
const STEPS: u32 = 4_000_000;
/// overlaybd's `MAX_STACK_LAYERS`.
const LAYERS: usize = 255;

/// Sectors of the device that a layer holds, and where.
struct Segment {
    device: Range<u64>,
    /// First sector in the layer; `None` where the device has zeros.
    layer: Option<u64>,
}

struct Trace {
    records: Vec<u8>,
    count: usize,
    steps: u32,
}

/// Lists the reads of layers that give these bytes of the device, in their order. `layers` are those of the
/// image's `lowers`, in their order; the device has `size` bytes.
pub fn overlaybd(bytes: &[Range<u64>], size: u64, layers: &[ImageFile<'_>]) -> Result<Places, String> {
    if layers.is_empty() || layers.len() > LAYERS {
        return Err(format!(
            "an image has 1 to {LAYERS} layers, given: {}",
            layers.len()
        ));
    }
    let mut left = SEGMENTS;
    let (mut indices, mut device) = (Vec::new(), 0);
    for layer in layers {
        let index = Index::read(layer, &mut left)?;
        indices.push(index.segments);
        // The device has the size that the topmost layer gives it.
        device = if index.device > 0 { index.device } else { device };
    }
    if device != size {
        return Err(format!(
            "these are layers of another image: its device has {device} bytes, that below --tree {size}"
        ));
    }
    let mut trace = Trace {
        records: Vec::new(),
        count: 0,
        steps: 0,
    };
    for bytes in bytes {
        let sectors = bytes.start / SECTOR..bytes.end.div_ceil(SECTOR);
        find(&indices, sectors, &mut trace)?;
    }
    let mut text = Vec::with_capacity(RECORD + trace.records.len());
    text.extend(TRACE.to_le_bytes());
    text.extend([0; 4]);
    text.extend((trace.records.len() as u64).to_le_bytes());
    text.extend(crc32c(0, &trace.records).to_le_bytes());
    text.extend([0; 4]);
    text.extend(&trace.records);
    Ok(Places {
        text,
        places: trace.count,
    })
}

/// The topmost layer that has a sector gives it.
fn find(layers: &[Vec<Segment>], sectors: Range<u64>, trace: &mut Trace) -> Result<(), String> {
    let Some((top, below)) = layers.split_last() else {
        return Ok(());
    };
    trace.step()?;
    let mut at = sectors.start;
    let first = top.partition_point(|segment| segment.device.end <= at);
    for segment in &top[first..] {
        trace.step()?;
        let begin = segment.device.start.max(at);
        let end = segment.device.end.min(sectors.end);
        if begin >= end {
            break;
        }
        if at < begin {
            find(below, at..begin, trace)?;
        }
        if let Some(layer) = segment.layer {
            trace.read(below.len(), layer + (begin - segment.device.start), end - begin)?;
        }
        at = end;
    }
    match at < sectors.end {
        true => find(below, at..sectors.end, trace),
        false => Ok(()),
    }
}

impl Trace {
    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        match self.steps {
            ..=STEPS => Ok(()),
            _ => Err(format!(
                "the layers' segments are looked at more than {STEPS} times"
            )),
        }
    }

    fn read(&mut self, layer: usize, sector: u64, sectors: u64) -> Result<(), String> {
        let (mut at, end) = (sector * SECTOR, (sector + sectors) * SECTOR);
        while at < end {
            let count = (end - at).min(READ);
            if self.count == RECORDS {
                return Err(format!("a trace of more than {RECORDS} reads"));
            }
            self.count += 1;
            self.records.extend([b'R', 0, 0, 0]);
            self.records.extend((layer as u32).to_le_bytes());
            self.records.extend(count.to_le_bytes());
            self.records.extend(at.to_le_bytes());
            at += count;
        }
        Ok(())
    }
}

/// What a layer says of the device.
struct Index {
    segments: Vec<Segment>,
    /// Bytes of the device; 0 if the layer does not say.
    device: u64,
}

impl Index {
    fn read(layer: &ImageFile<'_>, left: &mut u64) -> Result<Index, String> {
        let head: [u8; 64] = layer.array(0)?;
        if head.starts_with(ZFILE) {
            return Err(layer.refuse("is compressed: give what `overlaybd-zfile -x` makes of it"));
        }
        let end = layer.size.saturating_sub(HEAD);
        let tail: [u8; 64] = layer.array(end)?;
        let is_sealed = |flags: u32| flags & (IS_HEADER | IS_DATA | IS_SEALED) == IS_DATA | IS_SEALED;
        if !head.starts_with(MAGIC) || !tail.starts_with(MAGIC) || !is_sealed(u32_at(&tail, 28)) {
            return Err(layer.refuse("is no sealed layer of overlaybd"));
        }
        let (at, count, device) = (u64_at(&tail, 32), u64_at(&tail, 40), u64_at(&tail, 48));
        *left = left.checked_sub(count).ok_or_else(|| {
            layer.refuse(&format!(
                "has {count} segments, with those before it more than {SEGMENTS}"
            ))
        })?;
        let bytes = layer.vec(at, count as usize * SEGMENT)?;
        let segments = bytes.chunks_exact(SEGMENT).map(segment);
        let segments: Vec<Segment> = segments.flatten().collect();
        let is_ascending = segments.is_sorted_by(|a, b| a.device.end <= b.device.start);
        let is_inside = |segment: &Segment| {
            let length = segment.device.end - segment.device.start;
            let is_before = |end: u64| end.checked_mul(SECTOR).is_some_and(|end| end <= at);
            segment.layer.is_none_or(|begin| is_before(begin + length))
        };
        match is_ascending && segments.iter().all(is_inside) {
            true => Ok(Index { segments, device }),
            false => Err(layer.refuse("has segments that overlap or lie beyond its data")),
        }
    }
}

fn segment(bytes: &[u8]) -> Option<Segment> {
    let (device, layer) = (u64_at(bytes, 0), u64_at(bytes, 8));
    let (offset, length) = (device & ((1 << 50) - 1), device >> 50);
    let is_zero = layer >> 55 & 1 == 1;
    // Those at the highest offset fill the index.
    (offset != (1 << 50) - 1).then(|| Segment {
        device: offset..offset + length,
        layer: (!is_zero).then_some(layer & ((1 << 55) - 1)),
    })
}

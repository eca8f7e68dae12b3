//! headstart-plan(5).

use super::{Container, FormatError, Kind, Writer, is_page_size, refused, stage_name};
use crate::Key;
use crate::limits::{self, bounded};
use crate::plan::{
    CLASSES, DeviceRecord, FOLLOWS, FROM_END, FileRecord, FillRecord, HeadRecord, NO_FILE, Plan, PlanDraft,
    PlanFile, RequestKind, RequestRecord, TextRecord, TouchRecord,
};
use std::sync::atomic::Ordering;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The deepest queue a plan may ask for.
const MAX_DEPTH: u32 = limits::DEPTH as u32;

fn position<T: PartialEq>(choices: &[T], value: &T) -> u8 {
    choices.iter().position(|x| x == value).unwrap_or(0) as u8
}

impl PlanDraft {
    /// The plan as a file; depths are put in their range. What a reader would refuse is an error.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let file = PlanFile::new(self.written()?);
        let refused = |error| match error {
            FormatError::Damaged { kind, what } => FormatError::TooLarge { kind, what },
            other => other,
        };
        file.plan().map_err(refused)?;
        Ok(file.bytes)
    }

    /// The file, unchecked.
    pub(crate) fn written(&self) -> Result<Vec<u8>, FormatError> {
        let mut text = Vec::new();
        let mut keep = |bytes: &[u8]| -> TextRecord {
            let offset = text.len() as u32;
            text.extend_from_slice(bytes);
            TextRecord {
                offset: U32::new(offset),
                length: U32::new(bytes.len() as u32),
            }
        };
        let stages: Vec<TextRecord> = self.stages.iter().map(|s| keep(s.as_bytes())).collect();
        let devices: Vec<DeviceRecord> = self
            .devices
            .iter()
            .map(|d| DeviceRecord {
                mount_point: keep(d.mount_point.as_bytes()),
                uuid: d.uuid,
                bandwidth: U64::new(d.cost.bandwidth as u64),
                latency_ns: U64::new((d.cost.latency * 1e9).round() as u64),
                depth: U32::new(d.cost.depth.clamp(1, MAX_DEPTH)),
                request_limit: U32::new(d.request_limit),
                class: position(&CLASSES, &d.cost.class),
                hold: U32::new(d.hold),
                block_log: d.compression.map_or(0, |of| of.block.trailing_zeros() as u8),
                rate: U16::new(d.compression.map_or(0, |of| of.rate)),
            })
            .collect();
        let files: Vec<FileRecord> = self
            .files
            .iter()
            .map(|f| FileRecord {
                path: keep(f.path.as_bytes()),
                inode: U64::new(f.inode),
                size: U64::new(f.size),
                mtime_ns: I64::new(f.mtime_ns),
                generation: U32::new(f.generation),
                device: U16::new(f.device),
                zero: U16::ZERO,
            })
            .collect();
        let requests: Vec<RequestRecord> = self
            .requests
            .iter()
            .map(|r| RequestRecord {
                kind: position(&RequestKind::ALL, &r.kind),
                stage: r.stage,
                device: U16::new(r.device),
                file: U32::new(r.file),
                offset: U64::new(r.offset),
                length: U64::new(r.length),
                bridged: U64::new(r.bridged),
                deadline_us: U32::new(r.deadline_us),
                marks: U32::new((u32::from(r.from_end) * FROM_END) | (u32::from(r.follows) * FOLLOWS)),
            })
            .collect();
        let head = HeadRecord {
            created_unix_ns: U64::new(self.created_unix_ns),
            budget: U64::new(self.budget),
            page_size: U32::new(self.page_size),
            cut: U32::new(self.cut),
        };
        let mut file = Writer::new(Kind::Plan);
        file.raw(b"KEY ", self.key.as_str().as_bytes());
        file.raw(b"HEAD", head.as_bytes());
        file.raw(b"STAG", stages.as_bytes());
        file.raw(b"DEVS", devices.as_bytes());
        file.raw(b"FILE", files.as_bytes());
        file.raw(b"REQS", requests.as_bytes());
        file.raw(b"TEXT", &text);
        if !self.fills.is_empty() {
            let (fills, touches) = self.fill_records();
            file.raw(b"FILL", fills.as_bytes());
            file.raw(b"TOUC", touches.as_bytes());
        }
        if !self.named.is_empty() {
            let named: Vec<U32> = self.named.iter().map(|index| U32::new(*index)).collect();
            file.raw(b"NAMD", named.as_bytes());
        }
        file.finish()
    }

    fn fill_records(&self) -> (Vec<FillRecord>, Vec<TouchRecord>) {
        let fills = self.fills.iter().map(|fill| FillRecord {
            device: U16::new(fill.device),
            zero: U16::ZERO,
            depth: U32::new(fill.first_touch.depth),
            granule: U64::new(fill.first_touch.granule),
            latency_ns: U64::new((fill.first_touch.latency * 1e9).round() as u64),
            touches: U64::new(fill.touches.len() as u64),
        });
        let touches = self.fills.iter().flat_map(|fill| &fill.touches);
        let touches = touches.map(|touch| TouchRecord {
            offset: U64::new(touch.offset),
            request: U32::new(touch.request),
            zero: U32::ZERO,
        });
        (fills.collect(), touches.collect())
    }
}

/// A section as records, in place.
fn records<'a, T>(file: &Container<'a>, tag: &[u8; 4]) -> Result<&'a [T], FormatError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    <[T]>::ref_from_bytes(file.raw(tag)?).map_err(|_| {
        file.damaged(format!(
            "section {} is not a whole number of records",
            String::from_utf8_lossy(tag)
        ))
    })
}

impl PlanFile {
    /// Checks the plan and reads it in place.
    pub fn plan(&self) -> Result<Plan<'_>, FormatError> {
        let file = Container::new(Kind::Plan, &self.bytes)?;
        let key =
            std::str::from_utf8(file.raw(b"KEY ")?).map_err(|_| file.damaged("the key is not UTF-8"))?;
        Key::new(key).map_err(|e| file.damaged(e.to_string()))?;
        let [head] = records::<HeadRecord>(&file, b"HEAD")? else {
            return Err(file.damaged("section HEAD is not one record"));
        };
        let plan = Plan {
            key,
            head,
            stages: records(&file, b"STAG")?,
            devices: records(&file, b"DEVS")?,
            files: records(&file, b"FILE")?,
            requests: records(&file, b"REQS")?,
            text: file.raw(b"TEXT")?,
            fills: match file.has(b"FILL") {
                true => records(&file, b"FILL")?,
                false => &[],
            },
            touches: match file.has(b"FILL") {
                true => records(&file, b"TOUC")?,
                false => &[],
            },
            named: match file.has(b"NAMD") {
                true => records(&file, b"NAMD")?,
                false => &[],
            },
        };
        if !self.checked.load(Ordering::Relaxed) {
            check(&plan).map_err(|what| file.damaged(what))?;
            self.checked.store(true, Ordering::Relaxed);
        }
        Ok(plan)
    }
}

/// The texts of a plan, and how many bytes of them may still be referred to: many records may refer to the
/// same.
struct Texts<'a> {
    text: &'a [u8],
    left: usize,
}

impl<'a> Texts<'a> {
    fn get(&mut self, at: &TextRecord, what: &str, index: usize) -> Result<&'a [u8], String> {
        let (start, length) = (at.offset.get() as usize, at.length.get() as usize);
        let end = start.checked_add(length);
        let text = end.and_then(|end| self.text.get(start..end));
        let text = text.ok_or_else(|| format!("{what} {index} has a text that is not there"))?;
        let left = self.left.checked_sub(length);
        self.left = left.ok_or_else(|| format!("its texts have more than {} bytes", limits::TEXT))?;
        Ok(text)
    }

    fn path(&mut self, at: &TextRecord, what: &str, index: usize) -> Result<(), String> {
        let path = self.get(at, what, index)?;
        crate::path::check(path).map_err(|why| refused(format!("{what} {index}"), path, why))
    }
}

/// Whether every limit is kept, every path has one spelling, every index leads somewhere and every value is
/// in its range.
fn check(plan: &Plan<'_>) -> Result<(), String> {
    let page_size = plan.page_size();
    if !is_page_size(page_size) {
        return Err(format!("pages of {page_size} bytes"));
    }
    bounded("stages", plan.stages.len(), limits::STAGES)?;
    bounded("devices", plan.devices.len(), limits::DEVICES)?;
    bounded("files", plan.files.len(), limits::PLAN_FILES)?;
    bounded("requests", plan.requests.len(), limits::REQUESTS)?;
    bounded("bytes of TEXT", plan.text.len(), limits::TEXT)?;
    let mut texts = Texts {
        text: plan.text,
        left: limits::TEXT,
    };
    if plan.stages.is_empty() {
        return Err("it has no stage".into());
    }
    for (index, stage) in plan.stages.iter().enumerate() {
        stage_name(&String::from_utf8_lossy(texts.get(stage, "stage", index)?))?;
    }
    for (index, device) in plan.devices.iter().enumerate() {
        texts.path(&device.mount_point, "device", index)?;
        let fits = usize::from(device.class) < CLASSES.len()
            && (1..=MAX_DEPTH).contains(&device.depth.get())
            && device.request_limit.get() >= page_size
            && (device.block_log == 0 || device.compression().is_some());
        if !fits {
            return Err(format!("device {index}"));
        }
    }
    for (index, file) in plan.files.iter().enumerate() {
        texts.path(&file.path, "file", index)?;
        if usize::from(file.device.get()) >= plan.devices.len() {
            return Err(format!("file {index} is on a device that is not listed"));
        }
    }
    if plan.cut() > plan.requests.len() {
        return Err("the number of requests".into());
    }
    for (index, request) in plan.requests.iter().enumerate() {
        let Some(kind) = RequestKind::ALL.get(usize::from(request.kind)) else {
            return Err(format!("request {index} is of the unknown kind {}", request.kind));
        };
        let file = request.file.get();
        let names_file = match kind {
            RequestKind::Metadata => file == NO_FILE,
            _ => (file as usize) < plan.files.len(),
        };
        let reads = matches!(kind, RequestKind::Metadata | RequestKind::Data);
        let marks = match kind {
            RequestKind::Data => FROM_END | FOLLOWS,
            _ => 0,
        };
        let fits = names_file
            && usize::from(request.stage) < plan.stages.len()
            && usize::from(request.device.get()) < plan.devices.len()
            && request
                .offset
                .get()
                .checked_add(request.length.get())
                .is_some_and(|end| end <= i64::MAX as u64)
            && (request.length.get() > 0) == reads
            && request.marks.get() & !marks == 0
            && request.bridged.get() <= request.length.get();
        if !fits {
            return Err(format!("request {index}"));
        }
    }
    check_named(plan)?;
    check_fills(plan)
}

/// Whether each of those that only some starts are for is one of the requests, and listed once.
fn check_named(plan: &Plan<'_>) -> Result<(), String> {
    let mut least = 0;
    for index in plan.named {
        let index = index.get() as usize;
        if index < least || index >= plan.requests.len() {
            return Err(format!(
                "request {index} as one of those for starts that name their files"
            ));
        }
        least = index + 1;
    }
    Ok(())
}

/// Whether each device is filled at most once, each granule is one, and the request that needs it is one of
/// its device's.
fn check_fills(plan: &Plan<'_>) -> Result<(), String> {
    bounded("lazily filled devices", plan.fills.len(), limits::DEVICES)?;
    bounded(
        "granules of lazily filled volumes",
        plan.touches.len(),
        limits::TOUCHES,
    )?;
    let mut left = plan.touches;
    let mut before = None;
    for (index, fill) in plan.fills.iter().enumerate() {
        let (device, first_touch) = (fill.device.get(), fill.first_touch());
        let count = usize::try_from(fill.touches.get()).ok();
        let split = count.and_then(|count| left.split_at_checked(count));
        let Some((own, others)) = split.filter(|_| {
            usize::from(device) < plan.devices.len()
                && before.is_none_or(|before| before < device)
                && first_touch.makes_sense(plan.page_size().into())
        }) else {
            return Err(format!("fill {index}"));
        };
        let granule = first_touch.granule;
        let mut last = 0;
        for touch in own {
            let request = touch.request.get();
            let of_device = plan
                .requests
                .get(request as usize)
                .is_some_and(|request| request.device.get() == device);
            let at = touch.offset.get();
            let end = at.checked_add(granule).filter(|end| *end <= i64::MAX as u64);
            if !of_device || request < last || at % granule != 0 || end.is_none() {
                return Err(format!("a granule of fill {index}"));
            }
            last = request;
        }
        (left, before) = (others, Some(device));
    }
    match left {
        [] => Ok(()),
        _ => Err("granules of no device".into()),
    }
}

//! A plan as text and as a JSON document.

use crate::ROWS;
use crate::human::{ago, bytes, duration, printable};
use crate::table::{Table, Written, facts, section};
use headstart_model::machine::{Compression, Cost, FirstTouch};
use headstart_model::plan::{NO_FILE, Plan, Request, RequestKind};
use serde::Serialize;
use std::fmt;

/// A plan as a JSON document.
#[derive(Debug, Serialize)]
pub struct View {
    /// Whose start it serves.
    pub key: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Memory the replay may fill, bytes.
    pub budget: u64,
    /// Requests before this index are issued.
    pub cut: usize,
    /// Names of the stages.
    pub stages: Vec<String>,
    /// Devices, by index.
    pub devices: Vec<DeviceView>,
    /// Files, by index.
    pub files: Vec<FileView>,
    /// Requests in issue order.
    pub requests: Vec<RequestView>,
}

/// A device of a plan.
#[derive(Debug, Serialize)]
pub struct DeviceView {
    /// Where its file system is mounted.
    pub mount_point: String,
    /// The file system's UUID, in hexadecimal digits.
    pub uuid: String,
    /// What its reads cost.
    pub cost: Cost,
    /// The largest read one prefetch call serves, bytes.
    pub request_limit: u32,
    /// Whether the start is held until its metadata is in.
    pub hold: u32,
    /// How its files are compressed; null where that is not by blocks of one size.
    pub compression: Option<Compression>,
    /// What is fetched of it before it is asked for; null where it is not filled as it is read, or that does
    /// not pay.
    pub fill: Option<FillView>,
}

/// What is fetched of a lazily filled volume.
#[derive(Debug, Serialize)]
pub struct FillView {
    /// What a granule is, and what it costs.
    #[serde(flatten)]
    pub first_touch: FirstTouch,
    /// How many granules.
    pub granules: usize,
}

fn fill(plan: &Plan<'_>, device: usize) -> Option<FillView> {
    let fill = plan.fills().find(|fill| usize::from(fill.device) == device)?;
    Some(FillView {
        first_touch: fill.first_touch,
        granules: fill.touches.len(),
    })
}

/// A file of a plan.
#[derive(Debug, Serialize)]
pub struct FileView {
    /// Absolute path.
    pub path: String,
    /// Index of its device.
    pub device: u16,
    /// Inode number.
    pub inode: u64,
    /// Inode generation.
    pub generation: u32,
    /// Size, bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// A request of a plan.
#[derive(Debug, Serialize)]
pub struct RequestView {
    /// `metadata`, `stat`, `list` or `data`.
    pub kind: &'static str,
    /// Index of the stage.
    pub stage: u8,
    /// Index of the device.
    pub device: u16,
    /// Index of the file; null for metadata.
    pub file: Option<u32>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Of these, read only because that is cheaper than to jump over them.
    pub bridged: u64,
    /// When the start needs it, microseconds.
    pub deadline_us: u32,
    /// Whether the bytes move with the end of the file.
    pub from_end: bool,
    /// Whether it lies behind what the request before it reads, and is asked for together with it.
    pub follows: bool,
}

/// A kind's name.
pub fn kind(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Metadata => "metadata",
        RequestKind::Stat => "stat",
        RequestKind::List => "list",
        RequestKind::Data => "data",
    }
}

impl From<&Request> for RequestView {
    fn from(request: &Request) -> RequestView {
        RequestView {
            kind: kind(request.kind),
            stage: request.stage,
            device: request.device,
            file: Some(request.file).filter(|file| *file != NO_FILE),
            offset: request.offset,
            length: request.length,
            bridged: request.bridged,
            deadline_us: request.deadline_us,
            from_end: request.from_end,
            follows: request.follows,
        }
    }
}

/// The plan as a JSON document.
pub fn view(plan: &Plan<'_>) -> View {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    View {
        key: plan.key().into(),
        page_size: plan.page_size(),
        created_unix_ns: plan.created_unix_ns(),
        budget: plan.budget(),
        cut: plan.cut(),
        stages: plan.stages().collect(),
        devices: (0..plan.device_count())
            .filter_map(|i| Some((i, plan.device(i)?)))
            .map(|(index, device)| DeviceView {
                mount_point: device.mount_point.to_string(),
                uuid: hex(&device.uuid),
                cost: device.cost,
                request_limit: device.request_limit,
                hold: device.hold,
                compression: device.compression,
                fill: fill(plan, index),
            })
            .collect(),
        files: (0..plan.file_count())
            .filter_map(|i| plan.file(i))
            .map(|file| FileView {
                path: file.path.to_string(),
                device: file.device,
                inode: file.inode,
                generation: file.generation,
                size: file.size,
                mtime_ns: file.mtime_ns,
            })
            .collect(),
        requests: plan
            .requests()
            .map(|request| RequestView::from(&request))
            .collect(),
    }
}

/// Number, bytes and bridged bytes of the requests of a kind that are issued.
pub fn issued(plan: &Plan<'_>, kind: RequestKind) -> (u64, u64, u64) {
    plan.requests()
        .take(plan.cut())
        .filter(|request| request.kind == kind)
        .fold((0, 0, 0), |sum, request| {
            (
                sum.0 + 1,
                u64::saturating_add(sum.1, request.length),
                u64::saturating_add(sum.2, request.bridged),
            )
        })
}

/// The plan for people.
pub fn text(plan: &Plan<'_>, list_pages: bool, now_unix_ns: u64) -> impl fmt::Display {
    let beyond = plan.request_count() - plan.cut();
    let mut out = facts([
        ("plan for", plan.key().to_string()),
        ("made", ago(plan.created_unix_ns(), now_unix_ns)),
        (
            "memory",
            format!(
                "{} may be filled; {beyond} requests lie beyond that",
                bytes(plan.budget())
            ),
        ),
        ("files", plan.file_count().to_string()),
        ("stages", plan.stages().collect::<Vec<_>>().join(", ")),
    ]);
    let mut kinds = Table::new(&["requests", ">number", ">bytes", ">holes bridged"]);
    for request_kind in RequestKind::ALL {
        let (number, length, bridged) = issued(plan, request_kind);
        kinds.row([
            kind(request_kind).to_string(),
            number.to_string(),
            bytes(length),
            bytes(bridged),
        ]);
    }
    out += &section("Requests", &kinds);
    // The start waits for so many requests.
    let mut devices = Table::new(&[
        "class",
        ">latency",
        ">bandwidth",
        ">depth",
        ">largest read",
        ">waits for",
        "device of",
    ]);
    for device in (0..plan.device_count()).filter_map(|i| plan.device(i)) {
        devices.row([
            format!("{:?}", device.cost.class).to_lowercase(),
            duration((device.cost.latency * 1e9) as u64),
            format!("{}/s", bytes(device.cost.bandwidth as u64)),
            device.cost.depth.to_string(),
            bytes(u64::from(device.request_limit)),
            device.hold.to_string(),
            device.mount_point.to_string(),
        ]);
    }
    out += &section("Devices", &devices);
    let mut fills = Table::new(&[
        ">granules",
        ">bytes each",
        ">a fetch",
        ">at once",
        "fetched first of",
    ]);
    for (device, fill) in (0..plan.device_count()).filter_map(|i| Some((plan.device(i)?, fill(plan, i)?))) {
        fills.row([
            fill.granules.to_string(),
            bytes(fill.first_touch.granule),
            duration((fill.first_touch.latency * 1e9) as u64),
            fill.first_touch.depth.to_string(),
            device.mount_point.to_string(),
        ]);
    }
    if plan.fills().len() > 0 {
        out += &section("Filled as they are read", &fills);
    }
    out += &section("Files by bytes", &files(plan));
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&out)?;
        match list_pages {
            true => requests(plan, f),
            false => Ok(()),
        }
    })
}

fn files(plan: &Plan<'_>) -> Table {
    let mut sums = vec![(0u64, 0u64); plan.file_count()];
    for request in plan
        .requests()
        .filter(|request| request.kind == RequestKind::Data)
    {
        if let Some(sum) = sums.get_mut(request.file as usize) {
            *sum = (sum.0 + 1, sum.1.saturating_add(request.length));
        }
    }
    let mut order: Vec<usize> = (0..sums.len()).filter(|i| sums[*i].0 > 0).collect();
    order.sort_unstable_by_key(|i| (std::cmp::Reverse(sums[*i].1), *i));
    let mut table = Table::new(&[">bytes", ">requests", "file"]);
    for index in order.into_iter().take(ROWS) {
        let path = plan.path(index).map(String::from_utf8_lossy).unwrap_or_default();
        table.row([bytes(sums[index].1), sums[index].0.to_string(), path.into_owned()]);
    }
    table
}

fn requests(plan: &Plan<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nRequests in issue order")?;
    writeln!(
        f,
        "kind      stage  device            offset        length  needed at  file"
    )?;
    for (index, request) in plan.requests().enumerate() {
        let path = plan
            .path(request.file as usize)
            .map(String::from_utf8_lossy)
            .unwrap_or_default();
        let beyond = if index < plan.cut() {
            ""
        } else {
            " (beyond the budget)"
        };
        writeln!(
            f,
            "{:<8}  {:>5}  {:>6}  {:>16}  {:>12}  {:>9}  {}{beyond}",
            kind(request.kind),
            request.stage,
            request.device,
            request.offset,
            request.length,
            duration(u64::from(request.deadline_us) * 1000),
            printable(&path),
        )?;
    }
    Ok(())
}

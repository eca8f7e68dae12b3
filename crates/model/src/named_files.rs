//! What a start's arguments name: files that are this start's own, and say nothing of the next one of the
//! same program.

use crate::FilePath;
use crate::format::FormatError;
use crate::plan::{Fill, NO_FILE, Plan, PlanDraft, PlanFile, Request, RequestKind};
use std::collections::HashSet;

/// The paths that a start's arguments name.
#[derive(Clone, Debug, Default)]
pub struct NamedFiles(HashSet<Box<[u8]>>);

/// How arguments name a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Not at all.
    Not,
    /// A directory above it is named.
    Above,
    /// It is named itself.
    Itself,
}

impl NamedFiles {
    /// These paths; what no profile may have is left out.
    pub fn new(paths: impl IntoIterator<Item = FilePath>) -> NamedFiles {
        let paths = paths.into_iter().filter(|path| path.check().is_ok());
        NamedFiles(paths.map(|path| path.as_bytes().into()).collect())
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How this path is named.
    pub fn names(&self, path: &[u8]) -> Naming {
        if self.0.is_empty() {
            return Naming::Not;
        }
        if self.0.contains(path) {
            return Naming::Itself;
        }
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = ends.map(|(at, _)| &path[..at.max(1)]);
        match above.any(|directory| self.0.contains(directory)) {
            true => Naming::Above,
            false => Naming::Not,
        }
    }
}

impl Plan<'_> {
    /// Whether some of its requests are only for starts whose arguments name their files.
    pub fn has_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// Which of its requests are not for a start whose arguments name these.
    fn left_out(&self, named: &NamedFiles) -> Vec<bool> {
        let mut left_out = vec![false; self.request_count()];
        let requests: Vec<Request> = self.requests().collect();
        let mut metadata = Vec::new();
        let mut is_any_named = false;
        for index in self.named.iter().map(|index| index.get() as usize) {
            let Some(request) = requests.get(index) else {
                continue;
            };
            if request.file == NO_FILE {
                metadata.push(index);
                continue;
            }
            let path = self.path(request.file as usize).unwrap_or_default();
            let is_named = named.names(path) != Naming::Not;
            is_any_named |= is_named;
            left_out[index] = !is_named;
        }
        // Whose a block is nobody knows any more. Files that most starts use, and only some of them name, are
        // mostly named together.
        for index in metadata {
            left_out[index] = !is_any_named;
        }
        left_out
    }
}

impl PlanFile {
    /// The plan of a start whose arguments name these; `None` if it is this one as it is.
    pub fn of_start(&self, named: &NamedFiles) -> Result<Option<PlanFile>, FormatError> {
        let plan = self.plan()?;
        if !plan.has_named() {
            return Ok(None);
        }
        let left_out = plan.left_out(named);
        if !left_out.contains(&true) {
            return Ok(None);
        }
        // The key has been checked with the rest.
        let Ok(draft) = plan.to_draft() else {
            return Ok(None);
        };
        Ok(Some(PlanFile::new(without(draft, &left_out).to_bytes()?)))
    }
}

/// A plan without some of its requests. What memory had no room for beside those comes in.
fn without(mut draft: PlanDraft, left_out: &[bool]) -> PlanDraft {
    let cut = draft.cut as usize;
    let mut seen = vec![0u32; draft.devices.len()];
    let mut hold: Vec<u32> = vec![0; draft.devices.len()];
    // Whether what the device was to be asked for last is left out.
    let mut is_gap = vec![false; draft.devices.len()];
    let mut numbers = Vec::with_capacity(left_out.len());
    let mut kept: Vec<Request> = Vec::new();
    let mut of_left_out = HashSet::new();
    let mut fits = 0;
    for (index, mut request) in std::mem::take(&mut draft.requests).into_iter().enumerate() {
        let device = usize::from(request.device);
        let is_held = draft
            .devices
            .get(device)
            .is_some_and(|queue| seen[device] < queue.hold);
        let is_left_out = left_out.get(index).is_some_and(|is| *is);
        numbers.push((!is_left_out).then_some(kept.len() as u32));
        if let Some(seen) = seen.get_mut(device) {
            *seen += 1;
        }
        if request.kind == RequestKind::Data {
            if let Some(is_gap) = is_gap.get_mut(device) {
                request.follows &= !*is_gap;
                *is_gap = is_left_out;
            }
        }
        if is_left_out {
            of_left_out.insert(request.file);
            continue;
        }
        if let Some(hold) = hold.get_mut(device) {
            *hold += u32::from(is_held);
        }
        fits += u32::from(index < cut);
        kept.push(request);
    }
    let mut room = draft.budget;
    let mut cut = 0;
    for request in &kept {
        let Some(rest) = room.checked_sub(request.length) else {
            break;
        };
        (room, cut) = (rest, cut + 1);
    }
    draft.cut = fits.max(cut);
    draft.requests = kept;
    drop_files(&mut draft, &of_left_out);
    draft.named = Vec::new();
    for (device, hold) in draft.devices.iter_mut().zip(hold) {
        device.hold = hold;
    }
    for fill in &mut draft.fills {
        let touches = std::mem::take(&mut fill.touches).into_iter();
        fill.touches = touches
            .filter_map(|mut touch| {
                touch.request = (*numbers.get(touch.request as usize)?)?;
                Some(touch)
            })
            .collect();
    }
    draft.fills.retain(|fill: &Fill| !fill.touches.is_empty());
    draft
}

/// Drops those of these files that no request needs any more: to be asked for only, which needs none, is
/// another matter.
fn drop_files(draft: &mut PlanDraft, files: &HashSet<u32>) {
    let needed: HashSet<u32> = draft.requests.iter().map(|request| request.file).collect();
    let is_kept = |file: &u32| !files.contains(file) || needed.contains(file);
    let before = std::mem::take(&mut draft.files);
    let mut numbers = vec![NO_FILE; before.len()];
    for (number, file) in (0..).zip(before).filter(|(number, _)| is_kept(number)) {
        numbers[number as usize] = draft.files.len() as u32;
        draft.files.push(file);
    }
    for request in &mut draft.requests {
        request.file = numbers.get(request.file as usize).copied().unwrap_or(NO_FILE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::FirstTouch;
    use crate::plan::Touch;
    use crate::testing::{DISK, draft as draft_of, planned};

    #[test]
    fn a_path_is_named_by_itself_or_by_a_directory_above_it() {
        let named = NamedFiles::new(["/a/b".into(), "/c".into(), "relative".into(), "/x/../y".into()]);
        let how = |path: &str| named.names(path.as_bytes());
        assert_eq!(how("/a/b"), Naming::Itself);
        assert_eq!(how("/a/b/c/d"), Naming::Above);
        for other in ["/a", "/a/bc", "/", "/y", "relative", ""] {
            assert_eq!(how(other), Naming::Not, "{other}");
        }
        assert_eq!(NamedFiles::new(["/".into()]).names(b"/a"), Naming::Above);
        assert_eq!(NamedFiles::default().names(b"/a"), Naming::Not);
    }

    fn draft() -> PlanDraft {
        let data = |file| Request::new(RequestKind::Data, file, 4096);
        let metadata = Request::new(RequestKind::Metadata, NO_FILE, 4096);
        let follows = Request {
            follows: true,
            ..data(0)
        };
        let requests = vec![metadata, metadata, data(1), follows, data(2), data(0), data(0)];
        let files = ["/own", "/d/big", "/other", "/asked"].map(planned).to_vec();
        let mut draft = PlanDraft {
            budget: 5 * 4096,
            cut: 5,
            named: vec![1, 2, 4],
            fills: vec![Fill {
                device: 0,
                first_touch: FirstTouch {
                    granule: 1 << 19,
                    latency: 0.02,
                    depth: 8,
                },
                touches: [(0, 2), (1 << 19, 3)]
                    .map(|(offset, request)| Touch { offset, request })
                    .to_vec(),
            }],
            ..draft_of(DISK, files, requests)
        };
        draft.devices[0].hold = 4;
        draft
    }

    fn of_start(names: &[&str]) -> Option<PlanDraft> {
        let file = PlanFile::new(draft().to_bytes().unwrap());
        let named = NamedFiles::new(names.iter().map(|name| FilePath::from(*name)));
        let plan = file.of_start(&named).unwrap()?;
        Some(plan.plan().unwrap().to_draft().unwrap())
    }

    #[test]
    fn what_a_start_does_not_name_is_left_out_and_others_come_in() {
        let plan = of_start(&[]).unwrap();
        let files: Vec<u32> = plan.requests.iter().map(|request| request.file).collect();
        assert_eq!(files, [NO_FILE, 0, 0, 0]);
        assert_eq!((plan.cut, plan.devices[0].hold), (4, 2));
        assert!(plan.requests.iter().all(|request| !request.follows));
        assert_eq!(
            plan.fills[0].touches,
            [Touch {
                offset: 1 << 19,
                request: 1
            }]
        );
        assert_eq!(plan.named, []);
    }

    #[test]
    fn files_go_with_their_requests_and_those_that_are_only_asked_for_stay() {
        let files_of = |names: &[&str]| {
            let plan = of_start(names).unwrap();
            let asked = plan.requests.iter().map(|request| request.file);
            let asked: Vec<u32> = asked.filter(|file| *file != NO_FILE).collect();
            let files = plan.files.iter().map(|file| file.path.to_string());
            (files.collect::<Vec<_>>().join(" "), asked)
        };
        assert_eq!(files_of(&[]), ("/own /asked".into(), vec![0, 0, 0]));
        assert_eq!(
            files_of(&["/other"]),
            ("/own /other /asked".into(), vec![0, 1, 0, 0])
        );
    }

    #[test]
    fn what_a_start_names_is_read_for_it_with_its_metadata() {
        let plan = of_start(&["/d"]).unwrap();
        let files: Vec<u32> = plan.requests.iter().map(|request| request.file).collect();
        assert_eq!(files, [NO_FILE, NO_FILE, 1, 0, 0, 0]);
        assert_eq!((plan.cut, plan.devices[0].hold), (5, 4));
        assert!(plan.requests[3].follows);
        assert_eq!(of_start(&["/d/big", "/other"]), None, "all of it");
    }
}

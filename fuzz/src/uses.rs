//! What is done with a file by the commands, as far as no machine is needed for it, and what each of them may
//! take.

use headstart_inspect::diff::{Side, diff, plan_side, profile_side, trace_side};
use headstart_inspect::explain::{Known, Now, explain};
use headstart_inspect::export::{self, Form, Needed};
use headstart_inspect::{outcome, plan as plans, profile as profiles, trace as traces};
use headstart_learn::{LearnOptions, Reviewed, learn, review};
use headstart_model::format::Kind;
use headstart_model::outcome::{Issued, Mode, ReplayReport};
use headstart_model::plan::{PlanFile, Request};
use headstart_model::profile::Policy;
use headstart_model::{FilePath, Outcome, PageRange, Profile, ProfileSet, Trace, testing};
use headstart_plan::floor::{above_floor, floor, needs};
use headstart_plan::{PlanOptions, plan, recorded_metadata, wanted};
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fmt::{Display, Write};

/// The memory that reading a file and one use of it may take together, besides the file's bytes.
const MOST_BYTES: usize = 64 << 20;
/// The processor time of the same. Time on the clock would be that of whatever else the machine does.
const MOST_NS: u64 = 1_000_000_000;

fn processor_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Does something, and fails where that takes more than it may.
fn bounded(memory: &PeakAlloc, what: &str, work: impl FnOnce()) {
    let (held, began) = (memory.current_usage(), processor_ns());
    memory.reset_peak_usage();
    work();
    let took = (memory.peak_usage().saturating_sub(held), processor_ns() - began);
    assert!(took.0 <= MOST_BYTES, "{what} took {} bytes", took.0);
    assert!(took.1 <= MOST_NS, "{what} took {} ms", took.1 / 1_000_000);
}

/// Takes text and forgets it.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        Ok(())
    }
}

/// Every page range and every request is listed.
const ALL: bool = true;

fn show(document: &impl Serialize, text: impl Display) {
    serde_json::to_writer(std::io::sink(), document).expect("it is a document");
    write!(Nowhere, "{text}").expect("nowhere has room");
}

fn compare(kind: &'static str, a: &Side, b: &Side) {
    let diff = diff(kind, a, b);
    show(&diff, headstart_inspect::diff::text(&diff, ALL));
}

fn explained(path: &FilePath, profile: Option<&Profile>, file: Option<&PlanFile>) {
    let plan = file.and_then(|file| file.plan().ok());
    let known = Known {
        key: "k",
        profile,
        plan: plan.as_ref(),
        now: Now::Directory,
        excluded: None,
        untold: 0,
    };
    let it = explain(path, known);
    show(&it, headstart_inspect::explain::text(&it));
}

fn options() -> LearnOptions {
    LearnOptions {
        key: testing::key("k"),
        policy: Policy::Decay,
        now_unix_ns: 0,
        exclude: headstart_learn::DEFAULT_EXCLUDE.map(FilePath::from).to_vec(),
        named: Default::default(),
    }
}

/// What learning and showing make of a file that can be read, each use by itself.
pub fn all(bytes: &[u8], memory: &PeakAlloc) {
    match Kind::detect(bytes) {
        Some(Kind::Trace) => trace(bytes, memory),
        Some(Kind::Profile) => profile(bytes, memory),
        Some(Kind::ProfileSet) => profile_set(bytes, memory),
        Some(Kind::Plan) => a_plan(bytes, memory),
        Some(Kind::Outcome) => an_outcome(bytes, memory),
        None => {}
    }
}

fn trace(bytes: &[u8], memory: &PeakAlloc) {
    let read = || Trace::from_bytes(bytes);
    let mut sound = false;
    bounded(memory, "reading a trace", || sound = read().is_ok());
    if !sound {
        return;
    }
    let with = |what: &str, work: &dyn Fn(Trace)| {
        bounded(memory, what, || work(read().expect("it was read before")));
    };
    with("writing a trace", &|it| {
        it.to_bytes().expect("what was read can be written");
    });
    with("showing a trace", &|it| {
        show(&it, traces::text(&it, bytes.len(), ALL));
    });
    // What names too long paths too often is refused.
    with("exporting a trace", &|it| {
        drop(export::csv(&it, &mut std::io::sink()))
    });
    with("exporting a trace for Perfetto", &|it| {
        drop(export::perfetto(&it, &mut std::io::sink()));
    });
    with("exporting stacks of a trace", &|it| {
        if let Some(waits) = export::Waits::from_trace(&it) {
            let owners = std::collections::BTreeMap::new();
            waits
                .folded(&owners, &mut std::io::sink())
                .expect("nowhere has room");
        }
    });
    with("comparing a trace", &|it| {
        let mut few = testing::trace();
        few.files = vec![testing::file("/usr/bin/true")];
        few.uses = vec![testing::used(1, 0, 3, 9)];
        compare("trace", &trace_side(&it), &trace_side(&few));
    });
    with("learning a trace", &|it| {
        if let Ok(once) = learn(None, std::slice::from_ref(&it), &options()) {
            let learned = once.to_bytes().expect("what was learned can be written");
            drop(once);
            Profile::from_bytes(&learned).expect("what was learned can be read");
        }
    });
    with("learning a trace on top of itself", &|it| {
        if let Ok(once) = learn(None, std::slice::from_ref(&it), &options()) {
            let twice = learn(Some(once), std::slice::from_ref(&it), &options());
            twice
                .expect("it teaches")
                .to_bytes()
                .expect("what was learned can be written");
        }
    });
    let once = LearnOptions {
        policy: Policy::Union,
        ..options()
    };
    let profile = read().ok().and_then(|it| learn(None, &[it], &once).ok());
    if let Some(profile) = profile {
        let machine = crate::machine(&wanted(&profile));
        with("reckoning the floor of a trace", &|it| {
            let floor = floor(&it, &needs(&it, &profile, &machine), &machine);
            let file = testing::plan_file(&planned("/usr/bin/true".into()));
            let plan = file.plan().expect("it is sound");
            let outcome = Outcome {
                elapsed_ns: it.end.elapsed_ns,
                first_request_ns: Some(1),
                ..Outcome::new(testing::key("k"), Mode::Replay)
            };
            above_floor(&floor, &it, &profile, &machine, &plan, &outcome);
        });
    }
    with("reviewing a trace", &|it| {
        recorded_metadata(&it);
        let file = testing::plan_file(&planned("/usr/bin/true".into()));
        reviewed(&it, &file);
    });
}

/// A plan of one file.
fn planned(path: FilePath) -> headstart_model::plan::PlanDraft {
    use headstart_model::plan::{PlanFileEntry, Request, RequestKind};
    let request = Request::new(RequestKind::Data, 0, 1 << 16);
    let file = PlanFileEntry {
        path,
        ..testing::planned("/")
    };
    testing::draft(testing::FLASH, vec![file], vec![request])
}

/// Reviews a start as if all of a plan had been issued for it.
fn reviewed(trace: &Trace, file: &PlanFile) {
    let plan = file.plan().expect("it is sound");
    let requests: Vec<Request> = plan.requests().collect();
    let page = u64::from(plan.page_size());
    let issued = |request: usize| Issued {
        request: request as u32,
        pages: PageRange {
            start: requests[request].offset / page,
            end: (requests[request].offset + requests[request].length).div_ceil(page),
        },
        issued_ns: request as u64,
        done_ns: request as u64 + 1,
        resident: Vec::new(),
        arrived_pages: 1,
    };
    let report = ReplayReport {
        issued: (0..plan.cut()).map(issued).collect(),
        ..ReplayReport::default()
    };
    let outcome = review(&Reviewed {
        key: testing::key("k"),
        mode: Mode::Replay,
        trace,
        replay: Some((&plan, &report)),
        profile: None,
        trace_began_ns: 0,
        not_learned: None,
    });
    outcome.to_bytes().expect("what was reviewed can be written");
}

fn profile(bytes: &[u8], memory: &PeakAlloc) {
    let read = || Profile::from_bytes(bytes);
    let mut sound = false;
    bounded(memory, "reading a profile", || sound = read().is_ok());
    if !sound {
        return;
    }
    let with = |what: &str, work: &dyn Fn(Profile)| {
        bounded(memory, what, || work(read().expect("it was read before")));
    };
    with("writing a profile", &|it| {
        it.to_bytes().expect("what was read can be written");
    });
    with("showing a profile", &|it| show(&it, profiles::text(&it, ALL, 0)));
    with("comparing a profile", &|it| {
        let few = testing::profile(vec![testing::entry("/usr/bin/true")]);
        compare("profile", &profile_side(&it), &profile_side(&few));
    });
    with("learning on top of a profile", &|it| {
        let mut few = testing::trace();
        few.meta.page_size = it.page_size;
        few.files = vec![testing::file("/usr/bin/true")];
        few.uses = vec![testing::used(1, 0, 3, 9)];
        let learned = learn(Some(it), &[few], &options()).expect("it teaches");
        learned.to_bytes().expect("what was learned can be written");
    });
    let options = PlanOptions::new(0);
    with("planning a profile", &|it| {
        let machine = crate::machine(&wanted(&it));
        let file = plan(&it, &machine, &[], &options).to_bytes();
        let file = PlanFile::new(file.expect("what was planned can be written"));
        file.plan().expect("what was planned can be read");
    });
    for consumer in export::consumers() {
        with(
            &format!("listing the files of a profile for {}", consumer.name),
            &|it| {
                let needed = Needed::of(&it, &"/".into(), &|_| true);
                match consumer.form() {
                    Form::List(list) => drop(list.of(needed)),
                    Form::Places { .. } => drop(needed.pieces()),
                }
            },
        );
    }
    with("explaining a profile", &|it| {
        let heaviest = it.entries.iter().max_by_key(|entry| entry.ranges.len());
        let path = heaviest.map_or("/".into(), |entry| entry.path.clone());
        let file = testing::plan_file(&planned(path.clone()));
        explained(&path, Some(&it), Some(&file));
        explained(&"/none".into(), Some(&it), None);
    });
}

fn profile_set(bytes: &[u8], memory: &PeakAlloc) {
    let read = || ProfileSet::from_bytes(bytes);
    let mut sound = false;
    bounded(memory, "reading profiles", || sound = read().is_ok());
    if !sound {
        return;
    }
    bounded(memory, "writing profiles", || {
        let it = read().expect("they were read before");
        it.to_bytes().expect("what was read can be written");
    });
    bounded(memory, "showing profiles", || {
        let it = read().expect("they were read before");
        show(&it, headstart_inspect::profile_set::text(&it));
    });
    // Each is planned and kept before the next.
    for profile in read().expect("they were read before").into_profiles() {
        bounded(memory, "planning one of several profiles", || {
            let machine = crate::machine(&wanted(&profile));
            let file = plan(&profile, &machine, &[], &PlanOptions::new(0)).to_bytes();
            let file = PlanFile::new(file.expect("what was planned can be written"));
            file.plan().expect("what was planned can be read");
        });
    }
}

fn a_plan(bytes: &[u8], memory: &PeakAlloc) {
    let file = PlanFile::new(bytes.to_vec());
    let mut sound = false;
    bounded(memory, "reading a plan", || sound = file.plan().is_ok());
    let Ok(plan) = file.plan() else { return };
    bounded(memory, "writing a plan", || {
        let draft = plan.to_draft().expect("the key was checked");
        draft.to_bytes().expect("what was read can be written");
    });
    bounded(memory, "showing a plan", || {
        show(&plans::view(&plan), plans::text(&plan, ALL, 0))
    });
    bounded(memory, "comparing a plan", || {
        let few = testing::plan_file(&planned("/usr/bin/true".into()));
        compare(
            "plan",
            &plan_side(&plan),
            &plan_side(&few.plan().expect("it is sound")),
        );
    });
    bounded(memory, "explaining a plan", || {
        let path = plan.path(0).map_or("/".into(), FilePath::from);
        explained(&path, None, Some(&file));
    });
    bounded(memory, "explaining a plan with what was learned", || {
        let path = plan.path(0).map_or("/".into(), FilePath::from);
        // Text that is none is shown as another, and may not be a path of its own then.
        let Ok(path) = std::str::from_utf8(path.as_bytes()) else {
            return;
        };
        let profile = testing::profile(vec![testing::entry(path)]);
        explained(&path.into(), Some(&profile), Some(&file));
    });
    bounded(memory, "reviewing a plan", || {
        let mut few = testing::trace();
        few.files = vec![testing::file("/usr/bin/true")];
        few.uses = vec![testing::used(1, 0, 3, 9)];
        reviewed(&few, &file);
    });
}

fn an_outcome(bytes: &[u8], memory: &PeakAlloc) {
    let read = || Outcome::from_bytes(bytes);
    let mut sound = false;
    bounded(memory, "reading an outcome", || sound = read().is_ok());
    if !sound {
        return;
    }
    bounded(memory, "using an outcome", || {
        let it = read().expect("it was read before");
        it.to_bytes().expect("what was read can be written");
        show(&it, outcome::text(&it));
        let all = vec![it; 50];
        let comparison = headstart_learn::verdict::compare(&all);
        headstart_learn::verdict::slower(&all);
        headstart_inspect::status::verdict(&comparison);
    });
}

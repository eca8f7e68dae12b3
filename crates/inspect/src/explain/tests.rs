use super::*;
use headstart_model::plan::{PlanFile, Request};
use headstart_model::testing;

const NOW: Now = Now::File {
    size: testing::VERSION.size,
    mtime_ns: testing::VERSION.mtime_ns,
    inode: 12,
    generation: testing::VERSION.generation,
};

fn profile(share: f32) -> Profile {
    testing::profile(vec![Entry {
        weight: share,
        ranges: vec![testing::range(0, 2, share)],
        ..testing::entry("/f")
    }])
}

fn plan(cut: u32) -> PlanFile {
    let requests = vec![Request::new(RequestKind::Data, 0, 8192)];
    let mut draft = testing::draft(testing::FLASH, vec![testing::planned("/f")], requests);
    draft.cut = cut;
    testing::plan_file(&draft)
}

fn because(share: Option<f32>, cut: Option<u32>, now: Now, excluded: Option<&str>) -> (bool, String) {
    let profile = share.map(profile);
    let file = cut.map(plan);
    let plan = file.as_ref().map(|file| file.plan().unwrap());
    let known = Known {
        key: "k",
        profile: profile.as_ref(),
        plan: plan.as_ref(),
        now,
        excluded,
        untold: 0,
    };
    let explanation = explain(&"/f".into(), known);
    // Whatever line it is on.
    let words: Vec<String> = text(&explanation)
        .split_whitespace()
        .map(str::to_string)
        .collect();
    assert!(words.join(" ").contains(&explanation.because));
    (explanation.prefetched, explanation.because)
}

#[test]
fn what_lies_on_the_way_is_looked_up_and_needed_by_itself_in_no_run() {
    let requests = vec![Request::new(RequestKind::Stat, 0, 0)];
    let draft = testing::draft(testing::FLASH, vec![testing::planned("/d")], requests);
    let file = testing::plan_file(&draft);
    let plan = file.plan().unwrap();
    let of = |path: &str, untold| {
        let profile = profile(1.0);
        let known = Known {
            key: "k",
            profile: Some(&profile),
            plan: Some(&plan),
            now: Now::Directory,
            excluded: None,
            untold,
        };
        let explanation = explain(&path.into(), known);
        (explanation.prefetched, explanation.because)
    };
    let why = "it lies on the way to what is needed: the plan looks it up";
    assert_eq!(of("/d", 5), (true, why.into()));
    for (untold, words) in [
        (0, "learned from used it"),
        (5, "does not tell of 5 uses and look-ups"),
    ] {
        let (prefetched, why) = of("/e", untold);
        assert!(!prefetched && why.contains(words), "{why}");
    }
}

#[test]
fn the_deciding_reason_is_given() {
    assert_eq!(
        because(Some(1.0), Some(1), NOW, None),
        (true, "1 requests read 8.00 KiB of it".into())
    );
    let grown = Now::File {
        size: 8192,
        mtime_ns: 6,
        inode: 12,
        generation: testing::VERSION.generation,
    };
    assert!(because(Some(1.0), Some(1), grown, None).0, "the same file");
    for (it, words) in [
        (because(None, None, NOW, None), "nothing was learned"),
        (
            because(Some(0.2), Some(1), NOW, None),
            "weight is 20 %, 50 % is needed",
        ),
        (because(Some(1.0), None, NOW, None), "no plan"),
        (because(Some(1.0), Some(0), NOW, None), "memory budget"),
        (
            because(
                Some(1.0),
                Some(1),
                Now::File {
                    size: 8192,
                    mtime_ns: 6,
                    inode: 13,
                    generation: testing::VERSION.generation,
                },
                None,
            ),
            "another file is there",
        ),
        (
            because(Some(1.0), Some(1), Now::Missing, None),
            "another file is there",
        ),
        (because(None, None, NOW, Some("/proc")), "/proc is excluded"),
    ] {
        assert!(!it.0 && it.1.contains(words), "{it:?} lacks {words:?}");
    }
}

//! What each list says, whatever the names are. That the programs read their lists is what
//! crates/headstart/tests/commands/consumers.rs and tests/consumers test.

use super::{Form, List, Listed, all, named};
use crate::export::Needed;
use headstart_model::profile::{Entry, Need, Version};
use headstart_model::{FilePath, Profile, testing};

/// A file that every start uses whole, first so many nanoseconds after its beginning.
fn used(path: impl Into<FilePath>, first_use_ns: u64) -> Entry {
    let version = Version {
        size: 4096,
        mtime_ns: 0,
        generation: 0,
    };
    Entry::whole(path.into(), version, 4096, first_use_ns)
}

fn profile(mut entries: Vec<Entry>) -> Profile {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    testing::profile(entries)
}

fn listed(profile: &Profile, consumer: &str) -> Listed {
    listed_below(profile, consumer, "/", &|_| true)
}

fn list(consumer: &str) -> &'static List {
    match named(consumer).unwrap().form() {
        Form::List(list) => list,
        Form::Places { .. } => panic!("{consumer} takes places"),
    }
}

/// Those that take names.
fn of_names() -> impl Iterator<Item = &'static str> {
    let consumers = all().filter(|consumer| matches!(consumer.form(), Form::List(_)));
    consumers.map(|consumer| consumer.name)
}

fn listed_below(profile: &Profile, consumer: &str, root: &str, is_there: &dyn Fn(&[u8]) -> bool) -> Listed {
    let needed = Needed::of(profile, &FilePath::from(root), is_there);
    list(consumer).of(needed)
}

fn text(order: &Listed) -> String {
    String::from_utf8(order.text.clone()).unwrap()
}

#[test]
fn each_format_has_the_first_used_first() {
    let profile = profile(vec![
        used("/usr/bin/late", 9),
        used("/etc/early", 1),
        used("/lib/b", 5),
        used("/lib/a", 5),
    ]);
    for (format, expected) in [
        // The last line counts where a file has several names.
        (
            "squashfs",
            "usr/bin/late 32764\nlib/b 32765\nlib/a 32766\netc/early 32767\n",
        ),
        (
            "gensquashfs",
            "-4 /etc/early\n-3 /lib/a\n-2 /lib/b\n-1 /usr/bin/late\n",
        ),
        ("iso", "6 /etc/early\n5 /lib/a\n4 /lib/b\n3 /usr/bin/late\n"),
        ("erofs-tar", "./etc/early\0./lib/a\0./lib/b\0./usr/bin/late\0"),
    ] {
        let order = listed(&profile, format);
        assert_eq!(text(&order), expected, "{format:?}");
        assert!(order.files == 4 && order.unsaid.is_empty(), "{format:?}");
    }
}

#[test]
fn names_that_a_format_cannot_say_are_counted_and_add_no_line() {
    let names: [&[u8]; 9] = [
        b"/two\n32767 /etc/shadow",
        b"/#no comment",
        b"/[glob] *",
        b"/\"quoted\"",
        b"/back\\slash",
        b"/d/*",
        b"/end ",
        b"/end\r",
        b"/caf\xe9",
    ];
    let entries = names.iter().zip(0..);
    let profile = profile(entries.map(|(name, at)| used(name.to_vec(), at)).collect());
    for (format, unsaid, expected) in [
        (
            "squashfs",
            "the format cannot name it: 2, first /two\n32767 /etc/shadow",
            &b"caf\xe9 32761\nend\\\r 32762\nend\\  32763\nback\\\\slash 32764\n\"quoted\" 32765\n\
                [glob]\\ * 32766\n\\#no\\ comment 32767\n"[..],
        ),
        (
            "gensquashfs",
            "the format cannot name it: 3, first /two\n32767 /etc/shadow",
            b"-6 /#no comment\n-5 /[glob] *\n-4 /\"quoted\"\n-3 /back\\slash\n-2 /d/*\n-1 /caf\xe9\n",
        ),
        (
            "iso",
            "the format cannot name it: 2, first /two\n32767 /etc/shadow",
            b"9 /#no comment\n8 /[glob] *\n7 /\"quoted\"\n6 /back\\slash\n5 /d/*\n4 /end \n3 /caf\xe9\n",
        ),
        (
            "erofs-tar",
            "",
            b"./two\n32767 /etc/shadow\0./#no comment\0./[glob] *\0./\"quoted\"\0./back\\slash\0./d/*\0./end \0\
                ./end\r\0./caf\xe9\0",
        ),
    ] {
        let order = listed(&profile, format);
        assert_eq!(order.unsaid.to_string(), unsaid, "{format:?}");
        assert_eq!(order.text, expected, "{format:?}: {:?}", String::from_utf8_lossy(&order.text));
    }
}

#[test]
fn only_what_a_plan_would_read_is_listed() {
    let mut rare = used("/rare", 0);
    (rare.weight, rare.ranges[0].weight) = (0.2, 0.2);
    let mut sometimes = used("/metadata", 0);
    sometimes.ranges[0].weight = 0.2;
    let directory = Entry {
        need: Need::List,
        ..testing::entry("/directory")
    };
    let mut part = used("/part", 3);
    part.version.as_mut().unwrap().size = 4097;
    // Its first use is that of the range that counts.
    let mut ranges = used("/ranges", 0);
    ranges.ranges[0].first_use_ns = 2;
    let mut named = profile(vec![
        rare,
        sometimes,
        directory,
        part,
        ranges,
        used("/argument", 1),
    ]);
    named.named.insert("/argument".into(), 1.0);
    let order = listed(&named, "iso");
    assert_eq!(text(&order), "4 /ranges\n3 /part\n");
    assert_eq!(
        order.unsaid.to_string(),
        "only metadata is used: 2, first /directory; used only if an argument names it: 1, first /argument; \
         listed whole, used in part: 1, first /part"
    );
}

#[test]
fn names_are_those_in_the_image() {
    let lower = "/run/live/rootfs/filesystem.squashfs";
    let mut both = used(format!("{lower}/etc/both").as_str(), 1);
    both.overlay = Some("/etc/both".into());
    let profile = profile(vec![
        both,
        used("/etc/both", 2),
        used(format!("{lower}/etc/lower").as_str(), 3),
        used(format!("{lower}2/etc/other").as_str(), 4),
        used(lower, 5),
    ]);
    for root in [lower.to_string(), format!("{lower}/")] {
        let order = listed_below(&profile, "erofs-tar", &root, &|_| true);
        assert_eq!(text(&order), "./etc/both\0./etc/lower\0", "{root}");
        assert_eq!(
            order.unsaid.to_string(),
            format!("not below --root: 3, first /etc/both")
        );
    }
    // Through the overlay, and once.
    let is_there = |name: &[u8]| name == b"etc/both";
    let order = listed_below(&profile, "erofs-tar", "/", &is_there);
    assert_eq!(text(&order), "./etc/both\0");
    assert_eq!(
        order.unsaid.to_string(),
        format!("no regular file in --tree: 3, first {lower}/etc/lower")
    );
}

#[test]
fn mksquashfs_has_fewer_priorities_than_a_profile_may_have_files() {
    let entries = (0..32_770u64).map(|at| used(format!("/{at:05}").as_str(), at));
    let profile = profile(entries.collect());
    let order = listed(&profile, "squashfs");
    let text = text(&order);
    assert!(text.starts_with("32769 1\n32768 1\n32767 1\n32766 1\n32765 2\n"));
    assert!(text.ends_with("00001 32766\n00000 32767\n"));
    assert_eq!(
        order.unsaid.to_string(),
        "the priority is that of other files: 3, first /32767"
    );
    for consumer in of_names().filter(|consumer| *consumer != "overlaybd") {
        assert_eq!(listed(&profile, consumer).files, 32_770, "{consumer}");
    }
    // 6 bytes and the end of the line each.
    let overlaybd = listed(&profile, "overlaybd");
    assert_eq!((overlaybd.files, overlaybd.text.len()), (9_362, 65_534));
    assert_eq!(
        overlaybd.unsaid.to_string(),
        "the list is full: 23408, first /09362"
    );
}

/// Names that break what is written or read carelessly.
const HOSTILE: [&[u8]; 14] = [
    b"plain_1.0-2",
    b"[glob] *?{a,b}\\",
    b"brace{a,b}\\",
    b"# no comment",
    b" leading",
    b"trailing ",
    "unicode\u{2003}".as_bytes(),
    b"two\nlines",
    b"return\r",
    b"quo\"te\\",
    b"control\x01\x1b",
    b"caf\xe9",
    "\u{202e}txt.exe\u{2028}".as_bytes(),
    b"<script>",
];

fn hostile() -> Profile {
    let entries = HOSTILE.iter().zip(0..);
    profile(
        entries
            .map(|(name, at)| used([b"/", *name].concat(), at))
            .collect(),
    )
}

#[test]
fn lines_name_what_their_readers_would_not_misread() {
    for (consumer, without, expected) in [
        (
            "ctr-remote",
            &[5, 6, 7, 8, 11, 12][..],
            &b"/plain_1.0-2\n/\\[glob\\] \\*\\?\\{a,b\\}\\\\\n/brace{a,b}\\\n/# no comment\n/ leading\n"[..],
        ),
        (
            "overlaybd",
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
            b"/plain_1.0-2\n",
        ),
        (
            "dwarfs",
            &[7],
            b"/plain_1.0-2\n/[glob] *?{a,b}\\\n/brace{a,b}\\\n/# no comment\n/ leading\n/trailing \n",
        ),
        (
            "juicefs",
            &[5, 6, 7, 8, 12],
            b"./plain_1.0-2\n./[glob] *?{a,b}\\\n./brace{a,b}\\\n./# no comment\n",
        ),
        (
            "lustre",
            &[7],
            b"./plain_1.0-2\n./[glob] *?{a,b}\\\n./brace{a,b}\\\n./# no comment\n./ leading\n",
        ),
        (
            "list0",
            &[],
            b"./plain_1.0-2\0./[glob] *?{a,b}\\\0./brace{a,b}\\\0./# no comment\0",
        ),
    ] {
        let listed = listed(&hostile(), consumer);
        let text = String::from_utf8_lossy(&listed.text);
        assert!(listed.text.starts_with(expected), "{consumer}: {text:?}");
        assert_eq!(listed.files, HOSTILE.len() - without.len(), "{consumer}");
        if let Some(first) = without.first() {
            let why = format!("the format cannot name it: {}, first /", without.len());
            let first = String::from_utf8_lossy(HOSTILE[*first]);
            assert!(
                listed.unsaid.to_string().starts_with(&(why + &first)),
                "{consumer}: {}",
                listed.unsaid
            );
        }
    }
}

#[test]
fn json_is_read_back_with_the_names_that_json_can_have() {
    let utf8 = HOSTILE.iter().filter_map(|name| std::str::from_utf8(name).ok());
    let utf8: Vec<String> = utf8.map(|name| format!("/{name}")).collect();
    let profile = hostile();
    let read = |consumer: &str| -> serde_json::Value {
        serde_json::from_slice(&listed(&profile, consumer).text).unwrap()
    };
    let strings = |value: &serde_json::Value| -> Vec<String> {
        let values = value.as_array().unwrap().iter();
        values.map(|value| value.as_str().unwrap().into()).collect()
    };
    let trimmed = utf8
        .iter()
        .filter(|name| name.trim() == *name && !name.contains('\n'));
    assert_eq!(strings(&read("soci")), trimmed.cloned().collect::<Vec<_>>());

    let bundle = read("cvmfs");
    assert_eq!(strings(&bundle["dependencies"]), utf8);
    let head = ["name", "version", "encoding"].map(|key| bundle[key].as_str().unwrap());
    assert_eq!(head, ["CVMFS_BUNDLE", "1.0.0", "UTF-8"]);

    let nydus = read("nydus2");
    assert_eq!(nydus["version"], "v1");
    let files = nydus["files"].as_array().unwrap();
    assert!(files.iter().map(|file| &file["path"]).eq(&utf8));
    assert!(
        files
            .iter()
            .all(|file| file["ranges"] == serde_json::json!([[0, 4096]]))
    );

    let lines = listed(&profile, "estargz").text;
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let paths = lines.map(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        format!("/{}", line["path"].as_str().unwrap())
    });
    assert_eq!(paths.collect::<Vec<_>>(), utf8);
}

#[test]
fn nydus_is_told_which_bytes_are_needed() {
    let range = |start, pages, weight| headstart_model::profile::WeightedRange {
        start,
        pages,
        weight,
        ..testing::range(0, 1, 1.0)
    };
    let mut part = used("/part", 0);
    part.version.as_mut().unwrap().size = 50_000;
    part.ranges = vec![range(1, 2, 1.0), range(5, 1, 0.2), range(9, 1, 1.0)];
    // The last page, which is short, and pages before the beginning.
    part.tail = Some(vec![range(0, 1, 1.0), range(60, 4, 1.0)]);
    let listed = listed(&profile(vec![part]), "nydus2");
    let read: serde_json::Value = serde_json::from_slice(&listed.text).unwrap();
    assert_eq!(
        read["files"][0]["ranges"],
        serde_json::json!([[4096, 8192], [36_864, 4096], [49_152, 848]])
    );
    assert!(listed.unsaid.is_empty(), "{}", listed.unsaid);
}

#[test]
fn every_consumer_has_a_name_of_its_own_and_lists_the_first_used_first() {
    let profile = profile(vec![used("/late", 9), used("/early", 1)]);
    let mut names = std::collections::HashSet::new();
    for consumer in all() {
        assert!(names.insert(consumer.name) && !consumer.about.is_empty());
    }
    for consumer in of_names() {
        let text = text(&listed(&profile, consumer));
        let at = |name| text.find(name).unwrap();
        assert_eq!(
            at("early") > at("late"),
            consumer == "squashfs",
            "{consumer}: {text}"
        );
    }
}

#[test]
fn no_list_grows_without_bound() {
    // What JSON writes in six bytes each.
    let controls = "\u{1}".repeat(200);
    let entries = (0..20_000u64).map(|at| used(format!("/{at:05}{controls}").as_str(), at));
    let listed = listed(&profile(entries.collect()), "soci");
    assert!(
        listed.text.len() <= 12 << 20 && listed.files > 9_000,
        "{}",
        listed.files
    );
    assert!(
        listed.unsaid.to_string().starts_with("the list is full: "),
        "{}",
        listed.unsaid
    );
    let names: Vec<String> = serde_json::from_slice(&listed.text).unwrap();
    assert_eq!(names.len(), listed.files);
}

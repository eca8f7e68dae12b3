use super::{ListFormat, Order, order};
use headstart_model::profile::{Entry, Need, Version};
use headstart_model::{FilePath, Profile, testing};

const ALL: [ListFormat; 4] = [
    ListFormat::Squashfs,
    ListFormat::Gensquashfs,
    ListFormat::Iso,
    ListFormat::ErofsTar,
];

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

fn listed(profile: &Profile, format: ListFormat) -> Order {
    order(profile, format, &FilePath::from("/"), &|_| true)
}

fn text(order: &Order) -> String {
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
            ListFormat::Squashfs,
            "usr/bin/late 32764\nlib/b 32765\nlib/a 32766\netc/early 32767\n",
        ),
        (
            ListFormat::Gensquashfs,
            "-4 /etc/early\n-3 /lib/a\n-2 /lib/b\n-1 /usr/bin/late\n",
        ),
        (
            ListFormat::Iso,
            "6 /etc/early\n5 /lib/a\n4 /lib/b\n3 /usr/bin/late\n",
        ),
        (
            ListFormat::ErofsTar,
            "./etc/early\0./lib/a\0./lib/b\0./usr/bin/late\0",
        ),
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
            ListFormat::Squashfs,
            "the format cannot name it: 2, first /two\n32767 /etc/shadow",
            &b"caf\xe9 32761\nend\\\r 32762\nend\\  32763\nback\\\\slash 32764\n\"quoted\" 32765\n\
                [glob]\\ * 32766\n\\#no\\ comment 32767\n"[..],
        ),
        (
            ListFormat::Gensquashfs,
            "the format cannot name it: 3, first /two\n32767 /etc/shadow",
            b"-6 /#no comment\n-5 /[glob] *\n-4 /\"quoted\"\n-3 /back\\slash\n-2 /d/*\n-1 /caf\xe9\n",
        ),
        (
            ListFormat::Iso,
            "the format cannot name it: 2, first /two\n32767 /etc/shadow",
            b"9 /#no comment\n8 /[glob] *\n7 /\"quoted\"\n6 /back\\slash\n5 /d/*\n4 /end \n3 /caf\xe9\n",
        ),
        (
            ListFormat::ErofsTar,
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
    let order = listed(&named, ListFormat::Iso);
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
        let order = order(&profile, ListFormat::ErofsTar, &root.as_str().into(), &|_| true);
        assert_eq!(text(&order), "./etc/both\0./etc/lower\0", "{root}");
        assert_eq!(
            order.unsaid.to_string(),
            format!("not below --root: 3, first /etc/both")
        );
    }
    // Through the overlay, and once.
    let is_there = |name: &[u8]| name == b"etc/both";
    let order = order(&profile, ListFormat::ErofsTar, &"/".into(), &is_there);
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
    let order = listed(&profile, ListFormat::Squashfs);
    let text = text(&order);
    assert!(text.starts_with("32769 1\n32768 1\n32767 1\n32766 1\n32765 2\n"));
    assert!(text.ends_with("00001 32766\n00000 32767\n"));
    assert_eq!(
        order.unsaid.to_string(),
        "the priority is that of other files: 3, first /32767"
    );
    for format in ALL {
        assert_eq!(listed(&profile, format).files, 32_770);
    }
}

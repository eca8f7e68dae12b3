//! The limits of the file formats, all of them, each with its reason.
//!
//! A reader checks each of them while it reads, before it takes memory for what it counts; a writer refuses
//! what a reader would refuse. Together they keep what any file takes to be read below 64 MiB besides its own
//! bytes, and below a second. [`TABLE`] is what the pages headstart-format(5) to headstart-outcome(5) quote;
//! a test compares them.
//!
//! Figures that the reasons refer to: a cold start of LibreOffice keeps 8,373 uses, look-ups and metadata
//! misses, of 920 paths, in a trace of 21 KB; the plan of a desktop's boot has 2,689 requests.

/// The manual page that quotes a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// headstart-format(5)
    Format,
    /// headstart-trace(5)
    Trace,
    /// headstart-profile(5)
    Profile,
    /// headstart-plan(5)
    Plan,
    /// headstart-outcome(5)
    Outcome,
    /// headstart-profiles(5)
    Profiles,
    /// headstart-compare(5)
    Compare,
}

impl Page {
    /// The file name of the page.
    pub fn file(self) -> &'static str {
        match self {
            Page::Format => "headstart-format.5",
            Page::Trace => "headstart-trace.5",
            Page::Profile => "headstart-profile.5",
            Page::Plan => "headstart-plan.5",
            Page::Outcome => "headstart-outcome.5",
            Page::Profiles => "headstart-profiles.5",
            Page::Compare => "headstart-compare.5",
        }
    }
}

/// A limit, as the manual pages quote it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Where it is quoted.
    pub page: Page,
    /// What is counted.
    pub what: &'static str,
    /// The most that is read and written.
    pub most: usize,
    /// Why so many, and no more.
    pub why: &'static str,
}

macro_rules! limits {
    ($($name:ident = $most:expr, $page:ident, $what:literal, $why:literal;)*) => {
        $(
            #[doc = concat!("The most ", $what, ": ", $why, ".")]
            pub const $name: usize = $most;
        )*

        /// All limits, in the order in which the manual pages quote them.
        pub const TABLE: &[Limit] = &[$(Limit { page: Page::$page, what: $what, most: $name, why: $why }),*];
    };
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

limits! {
    FILE = 16 * MIB, Format, "bytes of a file", "of a boot neither trace nor profile nor plan has 1 MB";
    SECTIONS = 64, Format, "sections", "no kind has more than nine, the rest is for later versions";
    PATH = 4095, Format, "bytes of a path", "PATH_MAX of Linux, without its NUL";
    KEY = 4096, Format, "bytes of a key", "a key may be a path";
    STAGES = 256, Format, "stages", "a request of a plan names its stage by a byte";
    STAGE_NAME = 255, Format, "bytes of a stage's name", "as of a file name; headstart mark takes 64";

    META = 4 * MIB, Trace, "bytes of META, decoded", "what its lists can take, and some texts";
    WORDS = 4096, Trace, "words of the command", "they are for people: of a longer command the first are written";
    WORD_BYTES = 64 * KIB, Trace, "bytes of the command", "as its words";
    PROCESSES = 64 * KIB, Trace, "processes", "twice the ids that Linux gives by default before it uses one again";
    FILESYSTEMS = 4096, Trace, "file systems", "a machine full of containers has some hundreds";
    MARKS = 1024, Trace, "stage marks", "four times the stages that are told apart";
    MAPS = 2 * MIB, Trace, "bytes of MAPS, decoded", "what its list can take";
    MMAP = 2 * MIB, Trace, "bytes of MMAP, decoded", "what its table can take";
    MAPPINGS = 64 * KIB, Trace, "mappings", "LibreOffice has some hundreds";
    PATHS = 128 * KIB, Trace, "paths", "as look-ups";
    PATH_BYTES = 8 * MIB, Trace, "bytes of all paths, each listed once", "64 for each path";
    REFERRED_BYTES = 32 * MIB, Trace, "bytes of all paths, each as often as it is referred to", "what is printed of them is bounded so";
    PATH_SECTION = 9 * MIB, Trace, "bytes of PATH, decoded", "the paths, and how much each shares with the one before";
    COLS = 12 * MIB, Trace, "bytes of COLS, decoded", "what its tables can take";
    FILES = 64 * KIB, Trace, "files", "a source tree of Linux has 90,000, but no start reads most of it";
    USES = 128 * KIB, Trace, "uses", "fifteen times the uses, look-ups and metadata misses of LibreOffice";
    WINDOWS = 384 * KIB, Trace, "uses and rows of WIND together", "a row has up to eight runs of pages: with two million runs there is room for the uses as well";
    WIND = 9 * MIB, Trace, "bytes of WIND, decoded", "24 for each row";
    RUNS = 256 * KIB, Trace, "runs of pages in WIND that are told apart", "the memory of 1 GiB has half as many at most";
    LOOKUPS = 128 * KIB, Trace, "look-ups", "fifteen times the uses, look-ups and metadata misses of LibreOffice";
    MISSES = 64 * KIB, Trace, "metadata misses", "eight times the uses, look-ups and metadata misses of LibreOffice";
    ACTV = 8 * MIB, Trace, "bytes of ACTV, decoded", "eight for each row that may be";
    ROWS = MIB, Trace, "rows of all tables beside ACTV, all but slices counted twice", "of 32 bytes they are half of what may be taken; the tables of COLS and the processes are 917,504";
    REQUESTED = 256 * KIB, Trace, "block requests", "a disk answers 200 a second, flash that many in a minute of a start";
    SLICES = MIB, Trace, "slices of threads", "as rows";
    SAMPLES = 64 * KIB, Trace, "samples of processors, and of memory", "one each 0.1 seconds for two hours";
    BLOCK_DEVICES = 1024, Trace, "block devices", "a machine full of loop devices has some hundreds";
    BLOCK_NAME = 64, Trace, "bytes of a block device's name", "the kernel's have 31 at most";
    MISS_PAGES = 1 << 20, Trace, "pages of a metadata miss", "a block has at most 64 KiB, and no readahead is near 4 GiB";

    AHED = MIB, Trace, "bytes of AHED, decoded", "what its table can take";
    AHEAD = 32 * KIB, Trace, "requests of a replay", "twelve times those of the plan of a desktop's boot";

    HEAD = 8 * KIB, Profile, "bytes of HEAD, decoded", "a key and some numbers";
    STAG = 128 * KIB, Profile, "bytes of STAG, decoded", "what its list can take";
    ENTR = 15 * MIB, Profile, "bytes of ENTR, decoded", "what its lists can take";
    ENTRIES = 64 * KIB, Profile, "entries", "seventy times the paths of LibreOffice";
    RANGES = 128 * KIB, Profile, "ranges of all entries", "as uses of a trace";
    TAIL = 384 * KIB, Profile, "bytes of TAIL, decoded", "what its lists can take";
    TAILS = 4 * KIB, Profile, "files that change", "a boot writes some hundreds";
    TAIL_RANGES = 16 * KIB, Profile, "ranges from the end", "four for each file";
    TCHS = 3 * MIB, Profile, "bytes of TCHS, decoded", "what its lists can take";
    TOUCH_RANGES = 192 * KIB, Profile, "ranges of touches", "half as many again as of all entries";
    NAMD = 576 * KIB, Profile, "bytes of NAMD, decoded", "what its list can take";
    ENTRY_BYTES = 7 * MIB, Profile, "bytes of all paths", "112 for each entry";

    DEVICES = 64, Plan, "devices", "each has threads of its own in a replay; a start reads from one to three";
    DEPTH = 256, Plan, "requests at once", "no device that was measured gains beyond 64";
    REQUESTS = 128 * KIB, Plan, "requests", "fifty times those of a desktop's boot";
    PLAN_FILES = 64 * KIB, Plan, "files", "as entries of a profile";
    TOUCHES = 16 * KIB, Plan, "granules of lazily filled volumes", "of 512 KiB each they are 8 GiB";
    GRANULE = 64 * MIB, Plan, "bytes of a granule", "a power of two; those of 512 KiB are known";
    TEXT = 8 * MIB, Plan, "bytes of TEXT, and of all texts, each as often as a record refers to it", "as paths of a profile";

    OUTCOME_FILE = 256 * KIB, Outcome, "bytes of an outcome's file, and of OUTC, decoded", "a key, some numbers, and stages of at most 400 bytes each";
    REASON = 4096, Outcome, "bytes of a reason", "a sentence, with a path in it";

    SET_ENTRIES = 32 * KIB, Profiles, "entries of all profiles", "three times what all keys of a desktop have; to import more would take more than 64 MiB";
    SET_ENTRY_BYTES = 4 * MIB, Profiles, "bytes of all paths of all profiles", "128 for each entry";
    PROFILES = 512, Profiles, "profiles", "a desktop's daemon knows some hundreds of programs";
    PACKAGES = 8 * KIB, Profiles, "packages", "a desktop has some thousands installed, and starts read files of some hundreds";
    PACKAGE_TEXT = 255, Profiles, "bytes of a package's name, and of its version", "as of a file name, which dpkg makes of both";
    PKGS = MIB, Profiles, "bytes of PKGS, decoded", "128 for each package";
    SET_FILE = 5 * MIB, Profiles, "bytes of FILE, decoded", "its paths, and 32 for each entry";
    KEYS = 9 * MIB, Profiles, "bytes of KEYS, decoded", "what the lists of one profile can take, but for its paths";

    PIECES = 512 * KIB, Compare, "pieces of all reads", "a read of 128 KiB has at most 128, and most have one or two";
}

/// Refuses more than `most` of something.
pub(crate) fn bounded(what: &str, count: usize, most: usize) -> Result<(), String> {
    match count > most {
        true => Err(format!("it has more than {most} {what}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_pages_quote_every_limit_with_its_reason() {
        let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
        for limit in TABLE {
            let text = std::fs::read_to_string(pages.join(limit.page.file())).unwrap();
            let quoted = format!(".It {}: {}\n{}.\n", limit.what, limit.most, limit.why);
            assert!(text.contains(&quoted), "{} lacks\n{quoted}", limit.page.file());
        }
    }
}

//! What a boot had to say: kept in /run while it lasts, and beside the profile for the next.

use crate::own_cpu_time::OwnCpuTime;
use crate::this_boot::{RUN, make_run};
use headstart_model::human::duration;
use headstart_model::outcome::Mode;
use headstart_start::bypass::Alone;
use headstart_store::{KeyDir, write_whole};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Where a boot begins to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayIn {
    /// In the initramfs, when the root is mounted.
    Initramfs,
    /// In place of process 1, before the real init ([`crate::init`]).
    Init,
    /// As a generator of systemd, before it has read its units.
    Generator,
    /// The first unit of sysinit.
    #[default]
    Unit,
}

/// What a boot had to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootReport {
    /// Which boot, as the kernel names it (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// When this began to serve it, nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// From where on.
    pub from: WayIn,
    /// Whether the root was made writable for the boot-failure guard, before systemd would have.
    pub made_writable: bool,
    /// What was done for it.
    pub mode: Option<Mode>,
    /// Why nothing was read ahead; `None` if it was.
    pub not_replayed: Option<String>,
    /// What recorded, and what its events mean; `None` if nothing did.
    pub recorder: Option<String>,
    /// When each stage began, nanoseconds since process 1 did, or headstart if that was before.
    pub stages: Vec<(String, u64)>,
    /// From the same instant until systemd had finished or, if later, a session had begun, nanoseconds.
    pub took_ns: Option<u64>,
    /// How long of that nothing was read or computed, for somebody was waited for, nanoseconds.
    pub waited_ns: u64,
    /// How it ended; `None` while it lasts.
    pub ended: Option<String>,
    /// Why it taught nothing; `None` if it did, or has not ended.
    pub not_learned: Option<String>,
    /// The most memory that boots have lately needed for themselves, bytes; `None` while that is not known.
    #[serde(default)]
    pub memory_needed: Option<u64>,
    /// What headstart itself took of processors; `None` while it lasts.
    pub spent: Option<OwnCpuTime>,
    /// How the last boot went that was recorded without a replay; `None` while there was none.
    pub alone: Option<Alone>,
    /// Whether the boot-failure guard was armed again, so that the next boot may be read ahead.
    pub armed: bool,
    /// What else there was to say.
    pub notes: Vec<String>,
}

fn in_run() -> PathBuf {
    Path::new(RUN).join("last.json")
}

impl BootReport {
    /// What headstart itself took of processors, for people.
    pub fn spent(&self) -> Option<String> {
        self.spent.as_ref().map(OwnCpuTime::text)
    }

    /// How long it took, for people.
    pub fn took(&self) -> String {
        match self.took_ns {
            Some(took_ns) if self.waited_ns > 0 => format!(
                "It took {}, {} of which nothing was read or computed",
                duration(took_ns),
                duration(self.waited_ns)
            ),
            Some(took_ns) => format!("It took {}", duration(took_ns)),
            None => "How long it took is not known".into(),
        }
    }

    /// Keeps it for as long as the machine runs. Where there is not even that, nobody can be told.
    pub fn keep_in_run(&self) {
        if let Ok(json) = serde_json::to_vec_pretty(self) {
            let _ = make_run(Path::new(RUN));
            let _ = write_whole(&in_run(), &json);
        }
    }

    /// That of the last boot that could keep it.
    pub fn load(kept: &KeyDir) -> Option<BootReport> {
        serde_json::from_slice(&kept.last_boot_report().ok().flatten()?).ok()
    }

    /// That of this boot, or else of the last that could keep it.
    pub fn read(kept: &KeyDir) -> Option<BootReport> {
        let of_run = headstart_store::read_bounded(&in_run(), 1 << 20).ok().flatten();
        let bytes = of_run.or_else(|| kept.last_boot_report().ok().flatten())?;
        serde_json::from_slice(&bytes).ok()
    }
}

//! What is done for this boot ([`headstart_start::decide`]). That it is bypassed is found out before
//! headstart reads itself.

use crate::boot_report::WayIn;
use crate::cmdline::{self, Wish, wish};
use crate::persistence::Persistence;
use crate::program::room::Room;
use crate::this_boot;
use headstart_start::bypass::kernel;
use headstart_start::config::{self, Config};
use headstart_start::decide::{Decision, PriorState, decide};
use headstart_start::machine_of;
use headstart_store::{KeyDir, State, Store};
use rustix::fs::statfs;
use std::path::Path;

/// Its name in the directory of a key; `headstart-init` looks for it too.
const PLAN: &str = "plan";

/// Whether this boot is bypassed. Reads a file that is there only while boots are, and what may overrule it
/// if it is.
pub fn is_bypassed(store: &Store, place: WayIn) -> bool {
    if cmdline::is_after_crash() {
        return true;
    }
    // What is wrong with the command line and the configuration is told by a boot that is not bypassed.
    let quiet = &mut |_| {};
    let Ok(key) = this_boot::key() else { return false };
    let kept = store.key(&key);
    let in_vain = why_in_vain(store, &kept).is_some();
    if kept.bypass().is_none() && !in_vain {
        return false;
    }
    let (wish, config) = (wish(place, quiet), config::read(Path::new(config::FILE), quiet));
    if in_vain && is_nobodys_wish(wish, &config) {
        return true;
    }
    matches!(
        decide_boot(&kept.state(), wish, &config, true),
        Decision::Bypass(_)
    )
}

/// Whether this boot is bypassed because it is in vain to record it. `headstart-init` knows less of that.
pub fn is_in_vain(store: &Store, kept: &KeyDir, wish: Wish, config: &Config) -> bool {
    is_nobodys_wish(wish, config) && why_in_vain(store, kept).is_some()
}

fn is_nobodys_wish(wish: Wish, config: &Config) -> bool {
    wish == Wish::Usual && config.boot.control_every != 0
}

/// Why it is in vain to record a boot, if nothing is known of boots: what it would teach could not be kept.
/// To begin costs what it costs each time, a tenth of a boot where requests are slow.
pub fn why_in_vain(store: &Store, kept: &KeyDir) -> Option<String> {
    // Boots that are read ahead have their state in one file, which is in memory by now. The plan's directory
    // and inode are not: on a disk they are two reads of 10 ms each.
    let is_read_ahead = kept.start_path().is_some_and(|path| path.exists());
    if is_read_ahead || kept.path().join(PLAN).exists() || kept.imported().is_some() {
        return None;
    }
    if let Some(why) = Persistence::for_store(store).why_not(store) {
        return Some(format!(
            "nothing is known of boots, and what one would teach cannot be kept: {why}"
        ));
    }
    // Where it is not there yet, it may be on a file system that is not mounted yet.
    let facts = statfs(store.root()).ok()?;
    let room = Room {
        kind: facts.f_type as u64,
        block: u64::try_from(facts.f_bsize).unwrap_or(0),
        free_blocks: facts.f_bfree,
        inodes: facts.f_files,
        free_inodes: facts.f_ffree,
    };
    (!room.is_enough()).then(|| {
        format!(
            "nothing is known of boots, and there is no room in {} to keep what one would teach",
            store.root().display()
        )
    })
}

/// What is done for this boot. What somebody has decided on the kernel command line overrules what was
/// learned.
pub fn decide_boot(state: &State, wish: Wish, config: &Config, has_plan: bool) -> Decision {
    match wish {
        Wish::Record if has_plan => return Decision::Control,
        Wish::Record => return Decision::Record,
        _ => {}
    }
    decide(&PriorState {
        // Boots are switched off by `boot disable`.
        enabled: true,
        bypass: state.bypass.as_ref(),
        kernel: &kernel(),
        machine: &machine_of(state),
        turns: state.turns,
        control_every: if wish == Wish::Usual {
            config.boot.control_every
        } else {
            0
        },
        fixed_rate: false,
        has_plan,
        // A boot begins with nothing in memory.
        warmth: None,
        draw: draw(),
    })
}

/// A number by chance, the same for all that ask in one boot: the end of its id, a random UUID.
/// `headstart-init` reads it alike.
fn draw() -> u64 {
    let id = this_boot::boot_id();
    let digits = id.len().checked_sub(8).and_then(|start| id.get(start..));
    digits
        .and_then(|it| u64::from_str_radix(it, 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::PROGRAM;

    const HOOKS: [&str; 2] = [
        include_str!("../../../packaging/initramfs-tools/scripts/local-bottom/headstart"),
        include_str!("../../../packaging/dracut/90headstart/headstart.sh"),
    ];

    #[test]
    fn what_begins_before_headstart_looks_at_the_same_files() {
        let kept = Store::new("/var/lib/headstart").key(&this_boot::key().unwrap());
        let dir = kept.path().strip_prefix("/").unwrap().to_str().unwrap();
        let is_in = |text: &[u8], path: &str| text.windows(path.len()).any(|part| part == path.as_bytes());
        let start = dir.replace("/keys/", "/starts/");
        let guard = format!("{start}.guard");
        let files = ["bypass", "plan"].map(|file| format!("{dir}/{file}"));
        for path in files.iter().chain([&start, &guard]) {
            assert!(PROGRAM.is_empty() || is_in(PROGRAM, path), "{path}");
        }
        // A hook knows how the name ends.
        let ends = |path: &str| path.replace(kept.path().file_name().unwrap().to_str().unwrap(), "*-boot");
        for hook in HOOKS {
            let asks = format!(" ./{} ./{}\n", ends(&start), ends(&guard));
            assert!(
                asks.contains("/starts/*-boot") && is_in(hook.as_bytes(), &asks),
                "{asks}: {hook}"
            );
        }
    }
}

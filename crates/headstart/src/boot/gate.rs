//! Whether this boot is left alone ([`crate::session::gate`]), found out before headstart reads itself.

use super::cmdline::{Wish, wish};
use super::config::{self, Config};
use super::last::Place;
use crate::session::gate::pass;
use headstart_store::{Gate, KeyDir, Pass, Store};
use std::path::Path;

/// Whether it is. Reads a file that is there only while the gate is shut, and what may overrule it if it is.
pub fn is_shut(store: &Store, place: Place) -> bool {
    // What is wrong with the command line and the configuration is told by a boot that is not left alone.
    let quiet = &mut |_| {};
    let Ok(key) = super::key() else { return false };
    pass(&store.key(&key), draw()).0 == Pass::Shut
        && wish(place, quiet) == Wish::Usual
        && config::read(Path::new(config::FILE), quiet).boot.control_every > 0
}

/// What the gate does with this boot, unless somebody has decided about it.
pub fn of_boot(kept: &KeyDir, wish: Wish, config: &Config) -> (Pass, Option<Gate>) {
    if wish == Wish::Usual && config.boot.control_every > 0 {
        pass(kept, draw())
    } else {
        (Pass::Open, None)
    }
}

/// A number by chance, the same for all that ask in one boot: the end of its id, a random UUID. `headstart-init` reads it
/// alike.
fn draw() -> u64 {
    let id = super::boot_id();
    let digits = id.len().checked_sub(8).and_then(|start| id.get(start..));
    digits
        .and_then(|it| u64::from_str_radix(it, 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::init::PROGRAM;
    use super::*;

    const HOOKS: [&str; 2] = [
        include_str!("../../../../packaging/initramfs-tools/scripts/local-bottom/headstart"),
        include_str!("../../../../packaging/dracut/90headstart/headstart.sh"),
    ];

    #[test]
    fn what_begins_before_headstart_looks_at_the_same_files() {
        let kept = Store::new("/var/lib/headstart").key(&super::super::key().unwrap());
        let dir = kept.path().strip_prefix("/").unwrap().to_str().unwrap();
        let is_in = |text: &[u8], path: &str| text.windows(path.len()).any(|part| part == path.as_bytes());
        for file in ["gate", "plan", "guard", "turns"] {
            let path = format!("{dir}/{file}");
            assert!(PROGRAM.is_empty() || is_in(PROGRAM, &path), "{path}");
        }
        for hook in HOOKS {
            assert!(is_in(hook.as_bytes(), &format!("kept=./{dir} ")), "{dir}: {hook}");
        }
    }
}

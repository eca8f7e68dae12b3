//! The units of boots and the hooks of initramfs generators, as packages install them and as `boot enable`
//! writes them.

use crate::program::PROGRAM;
use std::path::{Path, PathBuf};

pub(crate) const UNIT: &str = include_str!("../../../packaging/systemd/headstart-boot.service");
/// The unit that a boot is served by.
pub(crate) const NAME: &str = "headstart-boot.service";
/// Wanted by it.
pub(crate) const BARRIER_UNIT: &str = include_str!("../../../packaging/systemd/headstart-barrier.service");
pub(crate) const BARRIER_NAME: &str = "headstart-barrier.service";
/// Where the unit says the command is.
pub(crate) const INSTALLED: &str = "/usr/bin/headstart";
/// Stands in the place of process 1; what the unit asks.
pub(crate) const INIT: &str = "usr/sbin/headstart-init";
/// Whether there is such a program for this processor.
pub(crate) const HAS_PROGRAM: bool = !PROGRAM.is_empty();

/// What starts it in an initramfs, as packages and `make install` put it.
macro_rules! hook {
    ($place:literal, $from:literal, $path:literal) => {
        Hook {
            place: $place,
            path: $path,
            text: include_str!(concat!("../../../packaging/", $from, "/", $path)),
        }
    };
}
pub(crate) const HOOKS: [Hook; 3] = [
    hook!(
        "etc/initramfs-tools",
        "initramfs-tools",
        "scripts/local-bottom/headstart"
    ),
    hook!(
        "usr/lib/dracut/modules.d",
        "dracut",
        "90headstart/module-setup.sh"
    ),
    hook!("usr/lib/dracut/modules.d", "dracut", "90headstart/headstart.sh"),
];

/// A file of an initramfs's generator.
pub(crate) struct Hook {
    /// Where the generator looks for it, from the root; there is no such directory where it is not installed.
    pub place: &'static str,
    pub path: &'static str,
    pub text: &'static str,
}

impl Hook {
    /// Its path from the root.
    pub fn file(&self) -> PathBuf {
        Path::new(self.place).join(self.path)
    }
}

/// The units as packages install them, and their names.
pub fn units() -> [(&'static str, String); 2] {
    [(NAME, UNIT), (BARRIER_NAME, BARRIER_UNIT)]
        .map(|(name, text)| (name, of_command(text, INSTALLED, HAS_PROGRAM)))
}

/// A unit or a hook that names the command where it is. The line that asks headstart-init goes where there is
/// none: a unit whose condition cannot be executed would never begin.
pub(crate) fn of_command(text: &str, command: &str, has_program: bool) -> String {
    let lines = text
        .lines()
        .filter(|line| has_program || !line.starts_with("ExecCondition="));
    let text: String = lines
        .map(|line| line.replace(INSTALLED, command) + "\n")
        .collect();
    text.replace(&format!("{command}-init"), &format!("/{INIT}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::limits;

    #[test]
    fn units_and_hooks_name_the_command_and_the_program_where_they_are() {
        let condition = "ExecCondition=+/usr/sbin/headstart-init --decide\n";
        assert_eq!(of_command(UNIT, INSTALLED, true), UNIT);
        assert!(UNIT.contains(condition));
        let elsewhere = of_command(UNIT, "/opt/headstart", true);
        assert!(elsewhere.contains(condition) && elsewhere.contains("ExecStart=/opt/headstart boot run\n"));
        let without = of_command(UNIT, INSTALLED, false);
        assert!(without.contains("ExecStart=/usr/bin/headstart boot run\n"));
        assert!(!without.contains("headstart-init"), "it is not there");
    }

    #[test]
    fn the_unit_looks_for_what_hooks_leave() {
        let mark = "/run/headstart/bypassed";
        assert!(UNIT.contains(&format!("\nConditionPathExists=!{mark}\n")));
        let leave_it = |hook: &&Hook| {
            hook.text
                .contains("for run in /run ./run; do true >$run/headstart/bypassed && ")
        };
        assert_eq!(HOOKS.iter().filter(leave_it).count(), 2);
    }

    #[test]
    fn the_unit_bounds_the_memory_of_the_process_and_not_what_it_reads_for_others() {
        let lines: Vec<&str> = UNIT.lines().collect();
        assert!(lines.contains(&format!("LimitDATA={}M", limits::MEMORY >> 20).as_str()));
        let by_cgroup = |line: &&str| line.starts_with("MemoryMax=") || line.starts_with("MemoryHigh=");
        assert!(
            !UNIT.lines().any(|line| by_cgroup(&line)),
            "the replay's pages count there"
        );
        assert!(BARRIER_UNIT.contains("\nLimitDATA="));
    }
}

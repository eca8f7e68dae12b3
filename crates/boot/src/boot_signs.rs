//! What tells of a boot where systemd does not answer headstart, as where SELinux has it answer nobody of
//! this context: whether users may log in, what somebody could log in at, and whether a shell was begun for
//! somebody to mend the machine. All of it is in files that systemd and logind leave for others; none is
//! asked for.

use headstart_system::sessions::{Sessions, sessions};
use std::fs::read_dir;
use std::path::{Path, PathBuf};

/// There as long as users may not log in (pam_nologin(8)): from early in a boot until
/// systemd-user-sessions.service removes it, and from its end on, which is among the first things of a
/// shutdown.
const CLOSED: &str = "/run/nologin";
/// Where control groups are: version 2, and systemd's own hierarchy beside version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd"];
/// The link that tells which service is the login screen.
const SCREEN: &str = "/etc/systemd/system/display-manager.service";
/// What asks at a terminal.
const PROMPTS: [&str; 4] = ["getty@", "serial-getty@", "console-getty.", "container-getty@"];
/// Shells for somebody to mend the machine.
const MENDING: [&str; 2] = ["rescue.service", "emergency.service"];
/// No machine has more services that run.
const MOST: usize = 4096;

/// The signs of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootSigns {
    /// Whether users may not log in.
    pub is_closed: bool,
    /// Whether something asks at a terminal who logs in.
    pub prompt: bool,
    /// Whether there is a login screen.
    pub screen: bool,
    /// Whether a user has logged in.
    pub session: bool,
    /// Whether it went to a shell for somebody to mend it.
    pub mending: bool,
}

impl BootSigns {
    /// Looks.
    pub fn of_now() -> BootSigns {
        let own = std::fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
        let slices = GROUPS.map(|root| Path::new(root).join(of_manager(&own)).join("system.slice"));
        let screen = std::fs::read_link(SCREEN).ok();
        let screen = screen.as_deref().and_then(|it| it.file_name()?.to_str());
        BootSigns::read(Path::new(CLOSED), &slices, screen, sessions())
    }

    fn read(closed: &Path, slices: &[PathBuf], screen: Option<&str>, sessions: Sessions) -> BootSigns {
        let mut signs = BootSigns {
            is_closed: closed.exists(),
            session: sessions.user_ns.is_some(),
            ..BootSigns::default()
        };
        for service in slices.iter().flat_map(|slice| services(slice)) {
            signs.prompt |= PROMPTS.iter().any(|prompt| service.starts_with(prompt));
            signs.mending |= MENDING.contains(&service.as_str());
            signs.screen |= Some(service.as_str()) == screen;
        }
        signs
    }

    /// Whether users can log in, as far as one look tells.
    pub fn is_open(&self) -> bool {
        self.session || (!self.is_closed && (self.prompt || self.screen))
    }
}

/// Where the control groups of process 1's units are, from the root of all that are seen here.
fn of_manager(own: &str) -> &str {
    let after = |what: &str| {
        own.lines()
            .find_map(|line| line.split_once(what).map(|(_, path)| path))
    };
    let path = after(":name=systemd:")
        .or_else(|| after("0::"))
        .unwrap_or_default();
    path.strip_suffix("/init.scope").unwrap_or(path).trim_matches('/')
}

/// The services that run, by their control groups: of the slice, and of those that instances of one service
/// have in it.
fn services(slice: &Path) -> Vec<String> {
    let names = |path: &Path| -> Vec<String> {
        let entries = read_dir(path).into_iter().flatten().flatten().take(MOST);
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    };
    let mut services = names(slice);
    let inner: Vec<String> = services
        .iter()
        .filter(|name| name.ends_with("getty.slice"))
        .cloned()
        .collect();
    services.extend(inner.iter().flat_map(|name| names(&slice.join(name))));
    services.retain(|name| name.ends_with(".service"));
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_leaves_for_others_tells_how_far_a_boot_is() {
        let dir = tempfile::tempdir().unwrap();
        let (closed, slice) = (dir.path().join("nologin"), dir.path().join("system.slice"));
        let signs_of = |user_ns| {
            let sessions = Sessions {
                greeter_ns: None,
                user_ns,
            };
            BootSigns::read(
                &closed,
                &[slice.clone(), "/nowhere".into()],
                Some("lightdm.service"),
                sessions,
            )
        };
        let begin = |service: &str| std::fs::create_dir_all(slice.join(service)).unwrap();
        assert_eq!(signs_of(None), BootSigns::default());
        assert!(!signs_of(None).is_open(), "nothing is known");
        begin("cron.service");
        begin("getty.slice");
        assert!(!signs_of(None).is_open());
        std::fs::write(&closed, "System is booting up.").unwrap();
        begin("system-getty.slice/getty@tty1.service");
        assert!(
            signs_of(None).prompt && !signs_of(None).is_open(),
            "users may not log in yet"
        );
        assert!(signs_of(Some(1)).is_open(), "but one has");
        std::fs::remove_file(&closed).unwrap();
        assert!(signs_of(None).is_open() && !signs_of(None).screen && !signs_of(None).mending);
        begin("lightdm.service");
        begin("emergency.service");
        assert!(signs_of(None).screen && signs_of(None).mending);
    }

    #[test]
    fn the_units_are_beside_process_1() {
        assert_eq!(of_manager("0::/init.scope\n"), "");
        assert_eq!(of_manager("0::/lxc/a/init.scope\n"), "lxc/a");
        assert_eq!(of_manager("0::/\n"), "");
        assert_eq!(
            of_manager("12:cpu:/\n1:name=systemd:/lxc/a/init.scope\n0::/\n"),
            "lxc/a"
        );
        assert_eq!(of_manager(""), "");
    }
}

//! Which starts cannot gain, and so are not kept.

use headstart_model::Trace;
use headstart_system::process::ProcessStat;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What installs packages. What it executes does each time something else, and nobody starts it again.
/// By the name of the process, which the kernel cuts off after 15 bytes, as well.
const INSTALLERS: [&str; 19] = [
    "dpkg",
    "dpkg-deb",
    "apt",
    "apt-get",
    "aptitude",
    "unattended-upgr",
    "unattended-upgrade",
    "dpkg-reconfigur",
    "dpkg-preconfigu",
    "rpm",
    "dnf",
    "dnf-3",
    "dnf5",
    "microdnf",
    "yum",
    "zypper",
    "pacman",
    "apk",
    "packagekitd",
];

/// So many ancestors of a process are looked at.
const MOST_ANCESTORS: usize = 32;

/// Whether this is an installer's executable.
pub(super) fn is_installer(executable: &[u8]) -> bool {
    let name = Path::new(std::ffi::OsStr::from_bytes(executable)).file_name();
    name.is_some_and(|name| INSTALLERS.iter().any(|one| name == *one))
}

/// Whether a key is of a script that a package brings for its own installation, whoever runs it: each is run
/// when the package changes, and reads something else then.
pub(super) fn is_of_a_package(key: &str) -> bool {
    const PLACES: [&str; 2] = ["/var/lib/dpkg/info/", "/var/lib/dpkg/tmp.ci/"];
    key.split(' ')
        .any(|word| PLACES.iter().any(|place| word.starts_with(place)))
}

/// Whether a process has an installer among its ancestors, as far as those live. By its name as well: one
/// that is a script is its interpreter's executable.
pub(super) fn is_installed_by_one(pid: u32) -> bool {
    let mut next = ProcessStat::for_process(pid).map(|stat| stat.parent);
    for _ in 0..MOST_ANCESTORS {
        let Some(pid) = next.filter(|pid| *pid > 1) else {
            return false;
        };
        let Some(stat) = ProcessStat::for_process(pid) else {
            return false;
        };
        let executable = std::fs::read_link(format!("/proc/{pid}/exe"));
        if executable.is_ok_and(|path| is_installer(path.as_os_str().as_bytes())) || is_script_of_one(pid) {
            return true;
        }
        next = Some(stat.parent);
    }
    false
}

fn is_script_of_one(pid: u32) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    is_installer(name.trim_ascii_end())
}

/// With so few pages in so few files of its own a start gains nothing: a replay takes 30 ms to begin, and on
/// a slow disk these are three or four requests.
const FEW_PAGES: u64 = 64;
const FEW_FILES: usize = 3;

/// Whether a start has used so little that others do not use all the time that reading it ahead cannot gain.
pub(super) fn needs_little(trace: &Trace) -> bool {
    let mut files = HashSet::new();
    let mut pages = 0;
    for one in trace.all_uses() {
        let path = trace
            .files
            .get(one.file as usize)
            .map(|file| file.path.as_bytes());
        if path.is_some_and(|path| !is_everybodys(path)) {
            files.insert(one.file);
            pages += u64::from(one.pages);
        }
    }
    files.len() <= FEW_FILES && pages <= FEW_PAGES
}

/// What nearly all programs read: the C library and its data.
fn is_everybodys(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let begins = [
        &b"ld-linux"[..],
        b"ld-musl-",
        b"ld64.so",
        b"ld-2.",
        b"libc.so",
        b"libc-2.",
        b"libc.musl-",
        b"libm.so",
        b"libm-2.",
        b"libdl.so",
        b"libdl-2.",
        b"libpthread",
        b"librt.so",
        b"librt-2.",
        b"libselinux.so",
        b"libpcre2-8.so",
        b"libcap.so",
        b"libacl.so",
        b"libattr.so",
        b"libgcc_s.so",
        b"libresolv.so",
        b"libnss_",
        b"gconv-modules",
    ];
    let whole = [
        &b"/etc/ld.so.cache"[..],
        b"/etc/ld.so.preload",
        b"/etc/localtime",
        b"/etc/nsswitch.conf",
        b"/etc/passwd",
        b"/etc/group",
        b"/etc/locale.alias",
        b"/usr/share/locale/locale.alias",
    ];
    let below = [&b"/usr/lib/locale/"[..], b"/usr/share/zoneinfo/"];
    begins.iter().any(|one| name.starts_with(one))
        || whole.contains(&path)
        || below.iter().any(|one| path.starts_with(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installers_are_known_by_their_names() {
        assert!(is_installer(b"/usr/bin/dpkg") && is_installer(b"/usr/bin/apt-get") && is_installer(b"dnf"));
        assert!(
            !is_installer(b"/usr/bin/dpkg-query") && !is_installer(b"/usr/bin/vim") && !is_installer(b"")
        );
        assert!(is_installer(b"unattended-upgr") && is_installer(b"/usr/bin/dnf-3"));
        assert!(!is_installed_by_one(std::process::id()));
    }

    #[test]
    fn a_packages_own_scripts_are_no_programs_whoever_runs_them() {
        for key in [
            "/var/lib/dpkg/info/man-db.postinst",
            "/usr/bin/perl /var/lib/dpkg/info/x.config of user 1000",
            "/var/lib/dpkg/tmp.ci/preinst",
        ] {
            assert!(is_of_a_package(key), "{key}");
        }
        for key in ["/usr/bin/dpkg-query", "/srv/var/lib/dpkg/info/x", "dpkg.service"] {
            assert!(!is_of_a_package(key), "{key}");
        }
    }

    #[test]
    fn what_all_programs_read_is_nobodys_own() {
        for all in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/locale/locale-archive",
            "/etc/ld.so.cache",
        ] {
            assert!(is_everybodys(all.as_bytes()), "{all}");
        }
        for own in [
            "/usr/bin/date",
            "/usr/lib/x86_64-linux-gnu/libcurl.so.4",
            "/srv/libc.so/data",
        ] {
            assert!(!is_everybodys(own.as_bytes()), "{own}");
        }
    }
}

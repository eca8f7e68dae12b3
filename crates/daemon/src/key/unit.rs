//! System services and users' sessions, by their control groups.

use headstart_model::Key;
use headstart_model::users::is_ordinary;

/// What sessions are called: root's so, others' with their user.
pub const SESSION: &str = "session";

/// No name of a unit is longer (`UNIT_NAME_MAX`, systemd's unit-name.h).
const MOST_NAME: usize = 255;

/// The service that a control group belongs to: `postgresql.service` of
/// `/system.slice/postgresql.service/any/below`. Instances of a template are one key, `getty@.service`: they
/// start the same program, and many of their names never come again, as of connections
/// (`sshd@12-10.0.0.1:22-10.0.0.2:50000.service`) and core dumps, each of which would be one more key. A
/// transient service of systemd-run(1) has no key for the same reason; its program has one. Services of
/// users' own managers are programs, too: anybody may name them as they like. A user's manager itself is that
/// user's session.
pub fn unit(cgroup: &str) -> Option<Key> {
    if user_of_manager(cgroup).is_some() {
        return Key::new(SESSION).ok();
    }
    let inside = cgroup.strip_prefix("/system.slice/")?;
    let unit = inside.split('/').find(|part| !part.ends_with(".slice"))?;
    let name = unit.strip_suffix(".service")?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    if name.is_empty() || unit.len() > MOST_NAME || !unit.bytes().all(known) || is_transient(name) {
        return None;
    }
    match name.split_once('@') {
        Some((template, _)) if !template.is_empty() => Key::new(format!("{template}@.service")).ok(),
        Some(_) => None,
        None => Key::new(unit).ok(),
    }
}

/// The user whose manager (systemd --user) process 1 starts in this control group: root, or a person. That of
/// a greeter is a service.
pub fn user_of_manager(cgroup: &str) -> Option<u32> {
    let inside = cgroup.strip_prefix("/user.slice/user-")?;
    let (uid, inside) = inside.split_once(".slice/user@")?;
    let (again, below) = inside.split_once(".service")?;
    let is_its_own = uid == again && matches!(below, "" | "/init.scope");
    let uid = uid.parse().ok().filter(|_| is_its_own)?;
    (uid == 0 || is_ordinary(uid)).then_some(uid)
}

/// `run-u12`, `run-r0123456789abcdef…`, `run-p12-i34`: systemd-run's names.
fn is_transient(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = name.strip_prefix("run-") else {
        return false;
    };
    match (rest.get(..1), rest.get(1..)) {
        (Some("u"), Some(id)) => number(id),
        (Some("r"), Some(id)) => id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        (Some("p"), Some(id)) => id
            .split_once("-i")
            .is_some_and(|(pid, id)| number(pid) && number(id)),
        _ => number(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_its_unit_and_nothing_else_is() {
        for (cgroup, expected) in [
            ("/system.slice/postgresql.service", Some("postgresql.service")),
            ("/system.slice/cron.service/below/it", Some("cron.service")),
            (
                "/system.slice/system-postgresql.slice/postgresql@15-main.service",
                Some("postgresql@.service"),
            ),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                Some("getty@.service"),
            ),
            (
                r"/system.slice/system-systemd\x2dfsck.slice/systemd-fsck@dev-sda1.service",
                Some("systemd-fsck@.service"),
            ),
            (
                "/system.slice/sshd@12-10.0.0.1:22-10.0.0.2:5.service",
                Some("sshd@.service"),
            ),
            ("/system.slice/run-user.service", Some("run-user.service")),
            ("/system.slice/run-u12.service", None),
            (
                "/system.slice/run-r0123456789abcdef0123456789abcdef.service",
                None,
            ),
            ("/system.slice/run-p12-i34.service", None),
            ("/system.slice/run-1234.service", None),
            // Containers and mounts are no services.
            ("/system.slice/docker-0123.scope/postgresql.service", None),
            ("/system.slice/home.mount", None),
            ("/machine.slice/system.slice/postgresql.service", None),
            // A user names these.
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/postgresql.service",
                None,
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-gimp-1.scope",
                None,
            ),
            ("/user.slice/user-1000.slice/session-2.scope", None),
            // The manager itself, up to systemd 253 and since then.
            ("/user.slice/user-1000.slice/user@1000.service", Some("session")),
            (
                "/user.slice/user-1000.slice/user@1000.service/init.scope",
                Some("session"),
            ),
            ("/user.slice/user-0.slice/user@0.service", Some("session")),
            // A greeter's; and what a user has made below.
            ("/user.slice/user-110.slice/user@110.service/init.scope", None),
            ("/user.slice/user-1000.slice/user@1001.service", None),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/user-0.slice/user@0.service",
                None,
            ),
            ("/user.slice/user-+5.slice/user@+5.service", None),
            ("/user.slice/user-x.slice/user@x.service", None),
            ("/system.slice/a b.service", None),
            ("/system.slice/.service", None),
            ("/system.slice/@x.service", None),
            ("/system.slice/", None),
            ("system.slice/cron.service", None),
            ("/init.scope", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(unit(cgroup).as_ref().map(Key::as_str), expected, "{cgroup}");
        }
        let long = format!("/system.slice/{}.service", "x".repeat(255));
        assert_eq!(unit(&long), None);
    }
}

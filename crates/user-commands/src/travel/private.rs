//! What of a name is nobody else's business.

use crate::privacy::homes;
use headstart_model::users::is_ordinary;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Where everybody may leave files, which nobody finds on another machine.
const TEMPORARY: [&str; 2] = ["/tmp/", "/var/tmp/"];

/// What is below comes from packages: a name there is no person's.
const OF_PACKAGES: &str = "/usr/";

/// More than the users of a machine take in passwd(5), bytes.
const MOST_USERS: u64 = 16 << 20;

/// Names that stay on this machine.
#[derive(Default)]
pub(super) struct Private {
    temporary: &'static [&'static str],
    homes: Vec<String>,
    people: Vec<String>,
}

impl Private {
    /// Those of this machine; none at all if what people have is wanted.
    pub(super) fn new(with_homes: bool) -> Private {
        match with_homes {
            true => Private::default(),
            false => Private {
                temporary: &TEMPORARY,
                homes: homes(),
                people: people(Path::new("/etc/passwd")),
            },
        }
    }

    /// Whether a path says what people have, or who they are.
    pub(super) fn has_path(&self, path: &[u8]) -> bool {
        let below = |directory: &str| path.starts_with(directory.as_bytes());
        let homes = self.homes.iter().map(String::as_str);
        if homes.chain(self.temporary.iter().copied()).any(below) {
            return true;
        }
        !below(OF_PACKAGES) && path.split(|byte| *byte == b'/').any(|part| self.is_person(part))
    }

    /// The same of a key: of each of its words.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let is_private = |word: &str| match word.starts_with('/') {
            true => self.has_path(word.as_bytes()),
            false => word.split('/').any(|part| self.is_person(part.as_bytes())),
        };
        // A name may have blanks.
        self.homes.iter().any(|home| key.contains(home)) || key.split(' ').any(is_private)
    }

    fn is_person(&self, name: &[u8]) -> bool {
        self.people.iter().any(|person| person.as_bytes() == name)
    }
}

/// The names of people, as passwd(5) lists them.
fn people(passwd: &Path) -> Vec<String> {
    let mut text = String::new();
    let read = File::open(passwd).and_then(|file| file.take(MOST_USERS).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        is_ordinary(uid).then(|| name.to_owned())
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Private {
        Private {
            temporary: &TEMPORARY,
            homes: vec!["/home/".into(), "/root/".into(), "/srv/people/bo/".into()],
            people: vec!["anna".into()],
        }
    }

    #[test]
    fn what_people_have_and_who_they_are_stays_here() {
        let private = private();
        for path in [
            "/home/anna/.bashrc",
            "/home/x",
            "/root/.profile",
            "/srv/people/bo/a",
            "/var/mail/anna",
            "/var/spool/cron/anna/x",
            "/tmp/x",
        ] {
            assert!(private.has_path(path.as_bytes()), "{path}");
        }
        for path in [
            "/home",
            "/usr/share/anna",
            "/usr/lib/libc.so.6",
            "/etc/annas",
            "/tmp",
        ] {
            assert!(!private.has_path(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn so_does_a_key_that_names_it() {
        let private = private();
        for key in [
            "/usr/bin/python3 /home/anna/my diary.py",
            "/usr/bin/python3 --at=/home/anna/x",
            "/usr/bin/podman anna/image",
            "/srv/people/bo/program",
        ] {
            assert!(private.has_key(key), "{key}");
        }
        for key in [
            "boot",
            "/usr/bin/vim",
            "cron.service",
            "/usr/bin/podman debian:13 perl /srv/job.pl",
        ] {
            assert!(!private.has_key(key), "{key}");
        }
        let all = Private::new(true);
        assert!(!all.has_key("/home/anna/x") && !all.has_path(b"/var/tmp/x"));
    }

    #[test]
    fn people_are_who_may_log_in() {
        let dir = tempfile::tempdir().unwrap();
        let passwd = dir.path().join("passwd");
        let text = "root:x:0:0::/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\nnobody:x:65534:1::/:/x\n:x:1001:\nbad\n";
        std::fs::write(&passwd, text).unwrap();
        assert_eq!(people(&passwd), ["anna"]);
        assert!(people(&dir.path().join("none")).is_empty());
    }
}

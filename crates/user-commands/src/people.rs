//! Users' names, for people: keys have numbers, which stay when a name changes.

use std::fs::File;
use std::io::Read as _;

/// What the key of a user's session begins with.
const SESSION: &str = "session of user ";

/// More than passwd(5) of most machines has, bytes.
const MOST: u64 = 1 << 20;

/// The same text, in which each session's key is followed by its user's name, where passwd(5) has one.
pub fn with_names(text: String) -> String {
    if !text.contains(SESSION) {
        return text;
    }
    let mut passwd = Vec::new();
    let read = File::open("/etc/passwd").and_then(|file| file.take(MOST).read_to_end(&mut passwd));
    // Without it numbers have to do.
    drop(read);
    named(&text, &String::from_utf8_lossy(&passwd))
}

fn named(text: &str, passwd: &str) -> String {
    let mut parts = text.split(SESSION);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (uid, rest) = part.split_at(digits);
        whole.push_str(SESSION);
        whole.push_str(uid);
        if let Some(name) = name_of(uid, passwd) {
            whole.push_str(&format!(" ({name})"));
        }
        whole.push_str(rest);
    }
    whole
}

fn name_of<'a>(uid: &str, passwd: &'a str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let is_it = fields.nth(1)? == uid;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
        (is_it && is_plain).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_told_with_its_users_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:\nb\u{1b}b:x:1001:1:::\n";
        for (text, expected) in [
            (
                "session of user 1000 is disabled\n",
                "session of user 1000 (alice) is disabled\n",
            ),
            ("key session of user 1000", "key session of user 1000 (alice)"),
            ("session of user 1001", "session of user 1001"),
            ("session of user 10", "session of user 10"),
            ("session", "session"),
            ("/usr/bin/x of user 1000", "/usr/bin/x of user 1000"),
        ] {
            assert_eq!(named(text, passwd), expected);
        }
        assert_eq!(with_names("nothing".into()), "nothing");
    }
}

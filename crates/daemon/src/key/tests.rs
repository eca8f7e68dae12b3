//! Keys of execs as the kernel sees them: command lines of programs in Debian.

use super::*;
use std::path::PathBuf;

/// Links of a Debian, and nothing else: the tests need none of its programs.
struct Debian;

const LINKS: [(&str, &str); 5] = [
    ("/usr/bin/soffice", "/usr/lib/libreoffice/program/soffice"),
    ("/usr/bin/libreoffice", "/usr/lib/libreoffice/program/soffice"),
    ("/usr/bin/npm", "/usr/share/nodejs/npm/bin/npm-cli.js"),
    ("/bin/xvfb-run", "/usr/bin/xvfb-run"),
    ("/srv/current/app.py", "/srv/1.2/app.py"),
];

impl keys::Names for Debian {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false => Path::new("/home/anna").join(path.strip_prefix("./").unwrap_or(path)),
        };
        let whole: PathBuf = whole.components().collect();
        let link = LINKS.iter().find(|(link, _)| Path::new(link) == whole);
        Some(link.map_or(whole, |(_, target)| target.into()))
    }

    fn is_there(&self, path: &Path) -> bool {
        path == Path::new("own.py")
    }

    fn is_registered(&self, executable: &Path) -> bool {
        executable == Path::new("/usr/bin/box64")
    }

    fn directory(&self) -> Option<PathBuf> {
        Some("/home/anna".into())
    }
}

fn key(executable: &str, argv: &[&str]) -> Option<String> {
    let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
    key_of_bytes(executable, &argv)
}

fn key_of_bytes(executable: &str, argv: &[Vec<u8>]) -> Option<String> {
    let exec = Exec {
        executable: Path::new(executable),
        argv,
        cgroup: Some("/user.slice/user-1000.slice/session-2.scope"),
        cwd: None,
        user: 0,
    };
    key_of_exec(&exec, &Debian).map(|start| start.key.to_string())
}

/// The executable, the arguments parted by blanks, and the key; nothing for none.
const CASES: &str = "
# Programs, whatever they are called by and asked for.
/usr/bin/gimp-2.10 | gimp photo.png | /usr/bin/gimp-2.10
/usr/bin/gimp-2.10 | gimp-2.10 --new-instance other.png | /usr/bin/gimp-2.10
/usr/bin/inkscape | /usr/bin/inkscape | /usr/bin/inkscape
/usr/bin/git | git status | /usr/bin/git
/usr/bin/ls |  | /usr/bin/ls
# Python.
/usr/bin/python3.11 | python3 | /usr/bin/python3.11
/usr/bin/python3.11 | python3 a.py | /usr/bin/python3.11 /home/anna/a.py
/usr/bin/python3.11 | python3 ./b.py --fast | /usr/bin/python3.11 /home/anna/b.py
/usr/bin/python3.11 | python3 -u -W ignore a.py | /usr/bin/python3.11 /home/anna/a.py
/usr/bin/python3.11 | /usr/bin/python3 /srv/current/app.py x | /usr/bin/python3.11 /srv/1.2/app.py
/usr/bin/python3.11 | /usr/bin/python3 -Es /usr/bin/apt-listchanges | /usr/bin/python3.11 /usr/bin/apt-listchanges
/usr/bin/python3.11 | python3 -m http.server 80 | /usr/bin/python3.11 -m http.server
/usr/bin/python3.11 | python3 -Imvenv x | /usr/bin/python3.11 -m venv
/usr/bin/python3.11 | python3 -m own.part x | /usr/bin/python3.11 -m own.part in /home/anna
# Through a version manager's.
/usr/bin/bash | bash /home/anna/.pyenv/shims/python3 -u a.py | /usr/bin/bash /home/anna/.pyenv/shims/python3 /home/anna/a.py
/usr/bin/bash | bash /home/anna/.pyenv/shims/python3.11 -c x |
/usr/bin/bash | bash /home/anna/.pyenv/shims/black a.py | /usr/bin/bash /home/anna/.pyenv/shims/black
/usr/bin/python3.11 | python3 -c import_os |
/usr/bin/python3.11 | python3 -Sc pass |
/usr/bin/python3.11 | python3 - | /usr/bin/python3.11
# Shell scripts: what the kernel makes of `soffice` is the shell's command.
/usr/bin/dash | /bin/sh /usr/bin/soffice | /usr/bin/dash /usr/lib/libreoffice/program/soffice
/usr/bin/dash | /bin/sh /usr/bin/libreoffice a.odt | /usr/bin/dash /usr/lib/libreoffice/program/soffice
/usr/bin/dash | /bin/sh /usr/bin/soffice --calc a.ods | /usr/bin/dash /usr/lib/libreoffice/program/soffice --calc
/usr/bin/dash | /bin/sh /usr/bin/libreoffice --norestore --writer | /usr/bin/dash /usr/lib/libreoffice/program/soffice --writer
/usr/bin/dash | /bin/sh /usr/bin/soffice a.odt --calc | /usr/bin/dash /usr/lib/libreoffice/program/soffice
/usr/bin/dash | /bin/sh /usr/bin/localc | /usr/bin/dash /usr/bin/localc
/usr/lib/libreoffice/program/oosplash | /usr/lib/libreoffice/program/oosplash --writer | /usr/lib/libreoffice/program/oosplash
/usr/lib/libreoffice/program/soffice.bin | /usr/lib/libreoffice/program/soffice.bin --writer | /usr/lib/libreoffice/program/soffice.bin
/usr/bin/dash | /bin/sh /usr/bin/firefox-esr | /usr/bin/dash /usr/bin/firefox-esr
/usr/bin/dash | /bin/sh /usr/bin/chromium --headless file:///a | /usr/bin/dash /usr/bin/chromium
/usr/bin/bash | bash | /usr/bin/bash
/usr/bin/bash | -bash | /usr/bin/bash
/usr/bin/bash | bash -l | /usr/bin/bash
/usr/bin/bash | bash --rcfile x build.sh | /usr/bin/bash /home/anna/build.sh
/usr/bin/bash | bash -euxo pipefail build.sh | /usr/bin/bash /home/anna/build.sh
/usr/bin/dash | sh -c ls |
/usr/bin/bash | bash -lc make |
/usr/bin/busybox | busybox sh x | /usr/bin/busybox sh /home/anna/x
/usr/bin/busybox | sh -c x |
# Browsers' own processes.
/usr/lib/firefox-esr/firefox-esr | /usr/lib/firefox-esr/firefox-esr | /usr/lib/firefox-esr/firefox-esr
/usr/lib/firefox-esr/firefox-esr | /usr/lib/firefox-esr/firefox-esr -contentproc -childID 1 |
/usr/lib/chromium/chromium | /usr/lib/chromium/chromium --type=renderer --lang=en |
/usr/lib/chromium/chromium | /usr/lib/chromium/chromium --type=zygote |
/usr/lib/chromium/chromium | /usr/lib/chromium/chromium --show-component-extension-options | /usr/lib/chromium/chromium
# Java.
/usr/lib/jvm/java-17/bin/java | java -jar app.jar | /usr/lib/jvm/java-17/bin/java -jar /home/anna/app.jar
/usr/lib/jvm/java-17/bin/java | java -Xmx1g -Da=b -jar /srv/app.jar -x | /usr/lib/jvm/java-17/bin/java -jar /srv/app.jar
/usr/lib/jvm/java-17/bin/java | java -cp a:b org.Main x | /usr/lib/jvm/java-17/bin/java org.Main
/usr/lib/jvm/java-17/bin/java | java -m mod/org.Main | /usr/lib/jvm/java-17/bin/java -m mod/org.Main
/usr/lib/jvm/java-17/bin/java | java @/tmp/args123 org.Main | /usr/lib/jvm/java-17/bin/java org.Main
# Node, Perl, Ruby and others.
/usr/bin/node | node /usr/bin/npm install | /usr/bin/node /usr/share/nodejs/npm/bin/npm-cli.js
/usr/bin/node | node --require x --inspect server.js | /usr/bin/node /home/anna/server.js
/usr/bin/node | node -e 1 |
/usr/bin/perl | /usr/bin/perl -w /usr/bin/ack x | /usr/bin/perl /usr/bin/ack
/usr/bin/perl | perl -pe s/a/b/ |
/usr/bin/ruby3.1 | ruby /usr/bin/gem list | /usr/bin/ruby3.1 /usr/bin/gem
/usr/bin/electron25 | electron25 --no-sandbox /usr/lib/code/app | /usr/bin/electron25 /usr/lib/code/app
/usr/share/code/code | /usr/share/code/code --unity-launch | /usr/share/code/code
/usr/bin/mono-sgen | /usr/bin/mono /usr/lib/keepass2/KeePass.exe | /usr/bin/mono-sgen /usr/lib/keepass2/KeePass.exe
/usr/bin/gjs-console | /usr/bin/gjs /usr/share/polari/org.gnome.Polari | /usr/bin/gjs-console /usr/share/polari/org.gnome.Polari
# Flatpak, snap, AppImage.
/usr/bin/flatpak | flatpak run --branch=stable --command=gimp org.gimp.GIMP a.png | /usr/bin/flatpak run org.gimp.GIMP
/usr/bin/flatpak | flatpak run --branch stable org.gimp.GIMP | /usr/bin/flatpak run org.gimp.GIMP
/usr/bin/flatpak | flatpak update | /usr/bin/flatpak
/usr/bin/bwrap | bwrap --args 40 -- gimp |
/usr/bin/snap | /snap/bin/firefox --new-window | /usr/bin/snap run firefox
/usr/bin/snap | snap run firefox | /usr/bin/snap run firefox
/usr/bin/snap | snap install firefox | /usr/bin/snap
/usr/lib/snapd/snap-confine | /usr/lib/snapd/snap-confine snap.firefox.firefox |
/home/anna/Krita.AppImage | ./Krita.AppImage | /home/anna/Krita.AppImage
/tmp/.mount_KritaX1y2/usr/bin/krita | krita |
# What only starts another.
/usr/bin/env | /usr/bin/env python3 a.py |
/usr/bin/sudo | sudo gimp |
/usr/bin/dash | /bin/sh /bin/xvfb-run -a gimp |
/usr/bin/flock | flock -n /run/l job |
/usr/bin/dash | /bin/sh /usr/bin/fakeroot-sysv make |
/usr/bin/perf | perf stat make |
/usr/bin/perf | perf report | /usr/bin/perf
/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 | /lib64/ld-linux-x86-64.so.2 /usr/bin/gimp-2.10 x | /usr/bin/gimp-2.10
/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 | ld.so --preload x /usr/bin/python3.11 a.py | /usr/bin/python3.11 /home/anna/a.py
/usr/bin/podman | podman run --rm -v a:b debian:12 ls /srv | /usr/bin/podman debian:12 ls
# What the kernel starts for files of other machines.
/usr/bin/qemu-aarch64-static | /usr/bin/qemu-aarch64-static ./tool x | /usr/bin/qemu-aarch64-static /home/anna/tool
/usr/bin/box64 | box64 ./tool x | /usr/bin/box64 /home/anna/tool
# What is not found again.
/memfd:x (deleted) | x |
/usr/bin/gimp-2.10 (deleted) | gimp |
relative | relative |
";

#[test]
fn a_key_is_what_a_person_means() {
    let cases = CASES.lines().filter(|line| line.contains('|'));
    for case in cases.clone() {
        let fields: Vec<&str> = case.split('|').map(str::trim).collect();
        let [executable, argv, expected] = fields[..] else {
            panic!("{case}");
        };
        let words: Vec<&str> = argv.split(' ').filter(|word| !word.is_empty()).collect();
        let derived = key(executable, &words);
        assert_eq!(derived.as_deref().unwrap_or(""), expected, "{executable}: {argv}");
    }
    assert_eq!(cases.count(), 84);
}

#[test]
fn ten_scripts_are_ten_keys() {
    let script_key = |number: u32| key("/usr/bin/python3.11", &["python3", &format!("/srv/{number}.py")]);
    let keys: std::collections::BTreeSet<_> = (0..10).filter_map(script_key).collect();
    assert_eq!(keys.len(), 10);
}

#[test]
fn a_service_is_its_unit_whatever_it_runs() {
    let argv = [b"/bin/sh".to_vec(), b"-c".to_vec(), b"x".to_vec()];
    let exec = Exec {
        executable: Path::new("/usr/bin/dash"),
        argv: &argv,
        cgroup: Some("/system.slice/system-postgresql.slice/postgresql@15-main.service"),
        cwd: None,
        user: 0,
    };
    assert_eq!(for_exec(&exec).unwrap().as_str(), "postgresql@.service");
    assert_eq!(for_exec(&Exec { cgroup: None, ..exec }), None);
}

#[test]
fn hostile_arguments_make_a_key_or_none_and_take_no_memory() {
    let python = "/usr/bin/python3.11";
    let no_text = key_of_bytes(python, &[b"python3".to_vec(), b"/srv/\xff\n\x1b[2J.py".to_vec()]).unwrap();
    assert!(!no_text.chars().any(char::is_control), "{no_text:?}");
    for argv in [
        vec![Vec::new(); 100_000],
        vec![vec![b'-'; 1 << 20]; 4],
        vec![vec![b'/'; 1 << 20]; 2],
        vec![vec![0xff; 1 << 20]; 2],
        vec![b"python3".to_vec(), b"-m".to_vec()],
        vec![b"python3".to_vec(), b"-W".to_vec()],
        vec![b"env".to_vec(), b"-S".to_vec(), b"-S -S -S".to_vec()],
        vec![],
    ] {
        for executable in [
            python,
            "/usr/bin/env",
            "/usr/bin/busybox",
            "/usr/bin/snap",
            "/usr/bin/nice",
        ] {
            let key = key_of_bytes(executable, &argv);
            assert!(key.is_none_or(|key| key.len() <= headstart_model::key::MAX_KEY));
        }
    }
    // Behind the limit nothing is looked at.
    let mut argv = vec![b"-u".to_vec(); MOST_ARGUMENTS];
    argv.push(b"/srv/a.py".to_vec());
    assert_eq!(key_of_bytes(python, &argv).as_deref(), Some(python));
}

#[test]
fn what_run_is_given_and_what_the_kernel_starts_have_the_same_key() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let script = dir.path().canonicalize().unwrap().join("script");
    let sh = Path::new("/bin/sh").canonicalize().unwrap();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let path = script.to_str().unwrap();
    for first_line in [
        "#!/bin/sh",
        "#! /bin/sh -eu",
        "#!/usr/bin/env sh",
        "#!/usr/bin/env -S sh -e",
    ] {
        std::fs::write(&script, format!("{first_line}\nexit 0\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let argv = [b"sh".to_vec(), b"-e".to_vec(), path.as_bytes().to_vec()];
        let exec = Exec {
            executable: &sh,
            argv: &argv,
            cgroup: None,
            cwd: None,
            user: 0,
        };
        let started = for_exec(&exec).unwrap();
        for command in [
            words(&[path]),
            words(&["sh", path]),
            words(&["nice", "-n", "5", "timeout", "9", path]),
        ] {
            assert_eq!(
                keys::of_command(&command).unwrap(),
                started,
                "{first_line}: {command:?}"
            );
        }
    }
}

#[test]
fn operations_are_a_users_own() {
    let key = |uid, name| of_operation(uid, name).map(|key| key.to_string());
    assert_eq!(key(1000, "open").as_deref(), Some("operation open of user 1000"));
    assert_ne!(key(1000, "open"), key(1001, "open"));
    for bad in ["", " open", "open ", "a\nb", &"x".repeat(129)] {
        assert_eq!(key(1000, bad), None, "{bad:?}");
    }
}

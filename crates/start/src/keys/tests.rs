//! Keys of command lines: what a user may type before `headstart run`, and what the kernel then starts.

use super::*;

fn key(words: &[&str]) -> String {
    derive(&words.iter().map(OsString::from).collect::<Vec<_>>())
}

/// An executable under a name of its own, so that the tests need no interpreter.
fn with_programs(names: &[&str], test: impl FnOnce(&dyn Fn(&str) -> String)) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in names {
        std::fs::write(root.join(name), "").unwrap();
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    test(&|name| root.join(name).to_str().unwrap().to_string());
}

#[test]
fn a_program_is_its_real_path() {
    with_programs(&["tool-1.2"], |at| {
        std::os::unix::fs::symlink(at("tool-1.2"), at("tool")).unwrap();
        assert_eq!(key(&[&at("tool"), "--option", "file"]), at("tool-1.2"));
    });
    assert_eq!(key(&["no-such-program-anywhere"]), "no-such-program-anywhere");
    assert!(key(&["sh"]).starts_with('/'), "found in PATH");
}

#[test]
fn an_interpreter_is_what_it_interprets() {
    with_programs(
        &[
            "python3.11",
            "java",
            "perl",
            "dash",
            "node",
            "ruby",
            "dotnet",
            "script.py",
            "app.jar",
        ],
        |at| {
            let (python, script) = (at("python3.11"), at("script.py"));
            for (words, expected) in [
                (vec![&*python], python.clone()),
                (
                    vec![&python, "-I", "-X", "dev", &script, "-m", "x"],
                    format!("{python} {script}"),
                ),
                (
                    vec![&python, "-m", "http.server", "80"],
                    format!("{python} -m http.server"),
                ),
                (vec![&python, "-mtimeit"], format!("{python} -m timeit")),
                (vec![&python, "-c", "import os"], format!("{python} -c import os")),
                (vec![&python, "--", &script], format!("{python} {script}")),
                (
                    vec![&at("java"), "-Xmx1g", "-jar", &at("app.jar"), "x"],
                    format!("{} -jar {}", at("java"), at("app.jar")),
                ),
                (
                    vec![&at("java"), "-cp", "a:b", "org.Main", "x"],
                    format!("{} org.Main", at("java")),
                ),
                (
                    vec![&at("java"), "--module", "m/c"],
                    format!("{} --module m/c", at("java")),
                ),
                (
                    vec![&at("perl"), "-w", "-I", "lib", &script],
                    format!("{} {script}", at("perl")),
                ),
                (
                    vec![&at("perl"), "-MTest::More", "-i.e", &script],
                    format!("{} {script}", at("perl")),
                ),
                (
                    vec![&at("ruby"), "-W:no-deprecated", &script],
                    format!("{} {script}", at("ruby")),
                ),
                (
                    vec![&at("dotnet"), "exec", &at("app.jar")],
                    format!("{} {}", at("dotnet"), at("app.jar")),
                ),
                (
                    vec![&at("node"), "--experimental-loader", "l", &script],
                    format!("{} {script}", at("node")),
                ),
                (
                    vec![&at("perl"), "-lane", "print"],
                    format!("{} -e print", at("perl")),
                ),
                (
                    vec![&at("dash"), "-ec", "exit 7"],
                    format!("{} -c exit 7", at("dash")),
                ),
                (
                    vec![&at("dash"), "-o", "errexit", &script],
                    format!("{} {script}", at("dash")),
                ),
                (
                    vec![&at("node"), "-r", "x", &script],
                    format!("{} {script}", at("node")),
                ),
            ] {
                assert_eq!(key(&words), expected);
            }
        },
    );
}

#[test]
fn long_one_liners_are_their_hash() {
    let sh = key(&["sh"]);
    let (a, b) = (key(&["sh", "-c", "a\nb"]), key(&["sh", "-c", "a\nc"]));
    assert!(a.starts_with(&format!("{sh} -c sha256:")) && a != b, "{a} {b}");
    assert!(Key::new(a).is_ok());
}

#[test]
fn env_and_multi_call_programs_are_seen_through() {
    with_programs(&["env", "busybox", "tool", "script"], |at| {
        assert_eq!(
            key(&[&at("env"), "-i", "A=b", "-u", "X", &at("tool"), "x"]),
            at("tool")
        );
        let seen_through = [&at("env"), "--block-signal", "--unset=B", "-uA", &at("tool"), "x"];
        assert_eq!(key(&seen_through), at("tool"));
        // What another working directory makes of the program is not known.
        assert_eq!(
            key(&[&at("env"), "-C", "/x", "./tool"]),
            at("env") + " -C /x ./tool"
        );
        assert_eq!(
            key(&[&at("env"), "--chdir=/x", "./tool"]),
            at("env") + " --chdir=/x ./tool"
        );
        assert_eq!(
            key(&[&at("busybox"), "sh", &at("script")]),
            format!("{} sh {}", at("busybox"), at("script"))
        );
        std::os::unix::fs::symlink(at("busybox"), at("ls")).unwrap();
        assert_eq!(key(&[&at("ls"), "-l"]), format!("{} ls", at("busybox")));
    });
}

#[test]
fn a_program_that_one_user_alone_starts_is_meant_by_its_path() {
    with_programs(&["program"], |at| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key_of_user = |user| Key::new(at("program")).unwrap().of_user(user).unwrap();
        let keep = |key: &Key| {
            let lock = store.key(key).lock().unwrap();
            lock.change(&headstart_store::Change {
                turns: Some(headstart_store::Turns {
                    replays_since_control: 1,
                    ..headstart_store::Turns::default()
                }),
                ..headstart_store::Change::default()
            })
            .unwrap();
        };
        let meant = || find_known(&at("program"), &store).map(|kept| kept.key().clone());
        assert!(meant().unwrap_err().to_string().contains("is not known"));
        keep(&key_of_user(1000));
        assert_eq!(meant().unwrap(), key_of_user(1000));
        keep(&key_of_user(1001));
        assert!(meant().unwrap_err().to_string().contains("several users"));
        // root's is the program's own key and comes first, and a whole key is what it says.
        let own = Key::new(at("program")).unwrap();
        keep(&own);
        assert_eq!(meant().unwrap(), own);
        assert_eq!(
            find_known(key_of_user(1001).as_str(), &store).unwrap().key(),
            &key_of_user(1001)
        );
    });
}

/// What a command line of a wrapper comes to: the words, and those of the command; a `!` for a program that
/// only has its own key.
const WRAPPED: &str = "
flock /run/l tool a | tool
flock -n /run/l tool | tool
flock -xnw 5 /run/l tool | tool
flock -w5 -E 9 --verbose /run/l tool | tool
flock --timeout 5 --conflict-exit-code=9 /run/l tool | tool
flock -- /run/l tool | tool
flock 9 | !
flock -n 9 | !
flock -u 9 | !
numactl --localalloc tool | tool
numactl -i all -N 0 --membind 0,1 --preferred=1 tool -N x | tool
numactl -lC 0-3 tool | tool
numactl --hardware | !
prlimit --core=0 tool | tool
prlimit -n1024 --nofile=1024: tool | tool
prlimit --pid 1 | !
setarch -R tool | tool
setarch x86_64 -R tool | tool
setarch linux32 tool | tool
setarch i386 --3gb tool | tool
taskset 3 tool | tool
taskset -c 0-1 tool | tool
taskset -ac 0,1 tool | tool
chrt -f 50 tool | tool
chrt --idle 0 tool | tool
chrt -b tool | tool
chrt -d -T 1 --sched-period 5 -D 3 0 tool | tool
chrt -p 1 | !
systemd-cat -t name -p info tool | tool
systemd-cat --identifier=name tool | tool
systemd-inhibit --what=idle --why because tool | tool
fakeroot tool | tool
fakeroot -s save -i save -- tool | tool
eatmydata -- tool | tool
strace -f tool | tool
strace -ffo out -e trace=%file -s 99 tool -o x | tool
strace --output out --trace=open tool | tool
strace -p 1 | !
perf stat tool | tool
perf stat -r 3 -e cycles,instructions -- tool -e | tool
perf record -ago out tool | tool
perf record --call-graph dwarf tool | tool
perf report | !
gamemoderun tool | tool
ccache tool -c a.c | tool
ccache CCACHE_DIR=/x tool -c a.c | tool
nice -n 5 tool | tool
nice -5 tool | tool
ionice -c2 -n7 tool | tool
choom -n 900 -- tool | tool
timeout -k 5 9 tool | tool
nice flock /l taskset 1 tool | tool
ld-linux-x86-64.so.2 AT/tool x | tool
ld-linux-x86-64.so.2 --library-path /a:/b --argv0 name --inhibit-cache AT/tool | tool
ld-musl-x86_64.so.1 --preload=/x AT/tool | tool
ld-linux-x86-64.so.2 --help | !
";

#[test]
fn a_wrapper_is_what_it_starts() {
    let cases: Vec<_> = WRAPPED
        .lines()
        .filter_map(|line| line.split_once(" | "))
        .collect();
    let mut names = vec!["tool"];
    for (command, _) in &cases {
        let name = command.split(' ').next().unwrap();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    with_programs(&names, |at| {
        for (command, expected) in &cases {
            let own = command.split(' ').next().unwrap();
            let words: Vec<String> = command
                .split(' ')
                .map(|word| match word.strip_prefix("AT/") {
                    Some(name) => at(name),
                    None if names.contains(&word) => at(word),
                    None => word.into(),
                })
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let expected = match *expected {
                "!" => at(own),
                name => at(name),
            };
            assert_eq!(key(&words), expected, "{command}");
        }
    });
}

#[test]
fn a_text_for_a_shell_behind_a_lock_is_a_one_liner() {
    with_programs(&["flock"], |at| {
        let locked_key = |text: &str| key(&[&at("flock"), "-n", "/run/l", "-c", text]);
        assert_eq!(locked_key("a b"), key(&["/bin/sh", "-c", "a b"]));
        assert_ne!(locked_key("a b"), locked_key("a c"));
    });
}

#[test]
fn what_a_known_launcher_is_told_in_a_way_that_is_not_known_tells_its_starts_apart() {
    with_programs(&["flock", "tool"], |at| {
        let key_of_job = |job: &str| {
            key(&[
                &at("flock"),
                "--new-option",
                "value-of-it",
                "/no-such-directory/l",
                job,
            ])
        };
        assert_eq!(
            key_of_job("a"),
            format!("{} --new-option value-of-it /no-such-directory/l a", at("flock"))
        );
        assert_ne!(key_of_job("a"), key_of_job("b"));
    });
}

#[test]
fn what_starts_another_program_elsewhere_is_told_apart_by_all_of_its_command_line() {
    with_programs(&["chroot", "unshare", "sudo", "bwrap"], |at| {
        for command in [
            "chroot / ls -l",
            "unshare -m ls",
            "sudo -u anna ls",
            "bwrap --ro-bind / / ls",
        ] {
            let mut words: Vec<&str> = command.split(' ').collect();
            let program = at(words[0]);
            words[0] = &program;
            let ls = key(&words);
            assert_eq!(ls, format!("{program} {}", words[1..].join(" ")));
            *words.last_mut().unwrap() = "cat";
            assert_ne!(key(&words), ls);
            // Called alone it is a program as any other.
            assert_eq!(key(&words[..1]), program);
        }
    });
}

#[test]
fn what_is_no_text_tells_programs_apart() {
    let key_of = |name: &[u8]| of_command(&[OsStr::from_bytes(name).to_owned()]).unwrap();
    assert_ne!(key_of(b"/nowhere/c\xffb"), key_of(b"/nowhere/c\xfeb"));
    assert_eq!(key_of(b"/nowhere/c\xffb").as_str(), "/nowhere/c\\xffb");
}

#[test]
fn a_container_is_its_image_and_what_runs_in_it() {
    let programs = ["podman", "docker", "apptainer", "systemd-nspawn", "lxc-start"];
    with_programs(&programs, |at| {
        for (command, expected) in [
            (
                "podman run --rm -it -v /a:/b --name x debian:12 perl -w /srv/a.pl y",
                "debian:12 perl /srv/a.pl",
            ),
            ("podman --log-level debug run -dp 80:80 nginx", "nginx"),
            ("podman container run --rm debian:12 ls -l", "debian:12 ls"),
            (
                "docker -H tcp://x run --rm --user=5 --env A=b debian:12 nice -n 5 make",
                "debian:12 nice -n 5 make",
            ),
            ("docker ps -a", ""),
            ("podman run --entrypoint /bin/a img", "img /bin/a"),
            ("docker run --rm --entrypoint=/bin/b img", "img /bin/b"),
            (
                "podman run --entrypoint python3 img /srv/a.py",
                "img python3 /srv/a.py",
            ),
            ("systemd-nspawn --template=/t -D /n", "/n"),
            (
                "apptainer exec --bind /a:/b -c image.sif python3 -u a.py",
                "image.sif python3 a.py",
            ),
            ("apptainer --silent run image.sif x", "image.sif x"),
            ("podman start web", "web"),
            (
                "systemd-nspawn -bD /srv/web --bind=/a -M web --private-users=no",
                "/srv/web",
            ),
            (
                "systemd-nspawn -q --directory /srv/web --setenv A=b perl /srv/a.pl x",
                "/srv/web perl /srv/a.pl",
            ),
            ("systemd-nspawn --machine=web /bin/sleep 1", "web /bin/sleep"),
            ("lxc-start -F -n web -P /srv", "web"),
            ("lxc-start --name=web -- /bin/sleep 1", "web /bin/sleep"),
            ("lxc-start web", "web"),
        ] {
            let mut words: Vec<&str> = command.split(' ').collect();
            let program = at(words[0]);
            words[0] = &program;
            assert_eq!(
                key(&words),
                format!("{program} {expected}").trim_end(),
                "{command}"
            );
        }
    });
}

#[test]
fn a_compiler_whose_name_leads_to_a_cache_is_that_compiler() {
    with_programs(&["ccache"], |at| {
        std::os::unix::fs::symlink(at("ccache"), at("c++")).unwrap();
        assert_eq!(key(&[&at("c++"), "-c", "a.cc"]), format!("{} c++", at("ccache")));
    });
}

#[test]
fn what_an_emulator_runs_is_in_its_key() {
    with_programs(
        &["qemu-aarch64-static", "qemu-system-x86_64", "valgrind", "tool"],
        |at| {
            let key_of_words = |words: &[&str]| {
                key(&words
                    .iter()
                    .map(|word| {
                        if word.contains('/') {
                            (*word).to_string()
                        } else {
                            at(word)
                        }
                    })
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>())
            };
            let tool = at("tool");
            assert_eq!(
                key(&[&at("qemu-aarch64-static"), "-L", "/usr/aarch64", &tool, "x"]),
                format!("{} {tool}", at("qemu-aarch64-static"))
            );
            assert_eq!(
                key(&[&at("valgrind"), "--leak-check=full", &tool]),
                format!("{} {tool}", at("valgrind"))
            );
            assert_eq!(
                key_of_words(&["qemu-system-x86_64", "/disk"]),
                at("qemu-system-x86_64")
            );
        },
    );
}

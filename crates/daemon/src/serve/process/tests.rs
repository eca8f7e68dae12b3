use super::*;

#[test]
fn a_command_line_is_cut_into_arguments() {
    assert_eq!(cut(b"sh\0-c\0\0"), [&b"sh"[..], b"-c", b""]);
    assert_eq!(cut(&b"x\0".repeat(100)).len(), MOST_ARGUMENTS);
    assert_eq!(cut(&[b'x'; 9000])[0].len(), MOST_BYTES);
}

#[test]
fn the_unified_cgroup_is_found() {
    let text = b"1:cpu:/x\n0::/system.slice/cron.service\n";
    assert_eq!(cgroup_of(text).as_deref(), Some("/system.slice/cron.service"));
    assert_eq!(cgroup_of(b"1:cpu:/x\n"), None);
}

fn process(executable: &str, argv: &[&str]) -> Process {
    Process {
        executable: executable.into(),
        argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
        has_more: false,
        cgroup: None,
        is_first: false,
        cwd: Some("/".into()),
        uid: 0,
    }
}

#[test]
fn what_the_kernel_takes_for_the_same_has_one_key() {
    let told = |process: &Process| process.is_told_apart(process.key().as_ref());
    let key_for = |executable: &str, argv: &[&str]| told(&process(executable, argv));
    assert!(key_for("/usr/bin/cat", &["cat", "a", "b"]));
    assert!(key_for("/usr/bin/python3", &["python3", "/srv/a.py", "x"]));
    assert!(key_for(
        "/usr/bin/python3",
        &["python3", "-m", "http.server", "80"]
    ));
    assert!(key_for("/usr/bin/python3", &["python3", "-c", "import os"]));
    // What is run comes behind what the kernel looks at.
    assert!(!key_for(
        "/usr/bin/python3",
        &["python3", "-W", "ignore", "/srv/a.py"]
    ));
    assert!(!key_for(
        "/usr/bin/java",
        &["java", "-Xmx1g", "-XX:+UseG1GC", "-jar", "/srv/a.jar"]
    ));
    assert!(!key_for("/usr/bin/flatpak", &["flatpak", "run", "org.gimp.GIMP"]));
    // A service is another than one that is started by hand, and all services of systemd begin the same
    // way.
    let mut service = process("/usr/sbin/cron", &["/usr/sbin/cron", "-f"]);
    service.cgroup = Some("/system.slice/cron.service".into());
    assert!(service.key().is_some() && !told(&service));
    assert!(!key_for(
        "/usr/lib/systemd/systemd-executor",
        &["systemd-executor", "--deserialize", "43"]
    ));
}

#[test]
fn a_process_that_executes_something_else_by_now_is_looked_at_only_where_the_kernel_told_all() {
    let own = std::env::current_exe()
        .unwrap()
        .into_os_string()
        .into_encoded_bytes();
    let pid = std::process::id();
    let nothing = Facts::default();
    // It is not answered in time where the machine is busy.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let answered = |path: &[u8], facts: Facts<'_>| loop {
        match Process::read(pid, path, facts) {
            Err(ProcessChanged::Gone) if std::time::Instant::now() < until => std::thread::yield_now(),
            found => break found,
        }
    };
    let process = answered(&own, nothing).unwrap();
    assert_eq!(process.uid, rustix::process::getuid().as_raw());
    let arguments: Vec<Vec<u8>> = std::env::args().map(String::into_bytes).collect();
    assert_eq!(process.argv, arguments);
    let facts = Facts {
        parent_and_user: Some((7, 4711)),
        arguments: Some(b"x\0"),
    };
    let process = Process::read(pid, &own, facts).unwrap();
    assert_eq!((process.argv, process.uid), (vec![b"x".to_vec()], 4711));
    // A launcher that is answered late.
    let process = Process::read(pid, b"/bin/sh", facts).unwrap();
    assert_eq!(process.executable, Path::new("/bin/sh"));
    assert_eq!((process.argv, process.uid), (vec![b"x".to_vec()], 4711));
    let without_user = Facts {
        parent_and_user: None,
        ..facts
    };
    let without_arguments = Facts {
        arguments: None,
        ..facts
    };
    for facts in [nothing, without_user, without_arguments] {
        assert_eq!(answered(b"/bin/sh", facts).err(), Some(ProcessChanged::Another));
    }
    for facts in [nothing, facts] {
        assert_eq!(
            Process::read(u32::MAX / 2, &own, facts).err(),
            Some(ProcessChanged::Gone)
        );
    }
}

#[test]
fn what_is_gone_is_in_no_key_and_a_name_that_ends_so_is() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let root = dir.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name);
    std::fs::create_dir(at("gone")).unwrap();
    for name in ["kept", "kept (deleted)", "replaced"] {
        std::fs::copy("/bin/sleep", at(name)).unwrap();
    }
    let start = |name: &str| {
        let mut command = std::process::Command::new(at(name));
        command.arg("60").current_dir(at("gone"));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match command.spawn() {
                // A process that another test has just forked still has the file open to write.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    assert!(std::time::Instant::now() < until, "{error}");
                }
                child => break child.unwrap(),
            }
        }
    };
    let mut children = ["kept", "kept (deleted)", "replaced"].map(start);
    let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe"));
    for child in &children {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !exe(child.id()).is_ok_and(|path| path.starts_with(&root)) {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
    }
    std::fs::remove_dir(at("gone")).unwrap();
    std::fs::copy("/bin/sleep", at("new")).unwrap();
    std::fs::rename(at("new"), at("replaced")).unwrap();
    let names: Vec<Option<String>> = ["kept", "kept (deleted)", "replaced"]
        .iter()
        .zip(&children)
        .map(|(name, child)| {
            let path = at(name).into_os_string().into_encoded_bytes();
            // Not read of the process: on a busy machine, or beside other tests' questions of the same
            // user, that is not answered in time.
            let facts = Facts {
                arguments: Some(b"sleep\x0060\0"),
                ..Facts::default()
            };
            let process = Process::read(child.id(), &path, facts).ok()?;
            assert_eq!(process.cwd, None, "{name}");
            Some(process.key()?.to_string())
        })
        .collect();
    let gone = at("removed (deleted)").into_os_string().into_encoded_bytes();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let expected = ["kept", "kept (deleted)", "replaced"].map(|name| Some(at(name).display().to_string()));
    assert_eq!(names, expected);
    assert_eq!(process(std::str::from_utf8(&gone).unwrap(), &["x"]).key(), None);
    // A script of a directory that is gone has no key.
    let script = Process {
        cwd: None,
        ..process("/usr/bin/python3", &["python3", "a.py"])
    };
    assert_eq!(script.key(), None);
}

#[test]
fn of_a_service_only_its_first_process_begins_it() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::create_dir_all(dir.path().join("system.slice/x.service")).unwrap();
    let is_first = |of: u32, processes: &[u32]| {
        let text: String = processes.iter().map(|pid| format!("{pid}\n")).collect();
        std::fs::write(dir.path().join("system.slice/x.service/cgroup.procs"), text).unwrap();
        is_first_in(dir.path(), "/system.slice/x.service", of)
    };
    let firsts = [
        is_first(own, &[own]),
        is_first(own, &[own, child.id()]),
        is_first(own, &[own, u32::MAX / 2]),
        is_first(child.id(), &[own, child.id()]),
    ];
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(firsts, [true, true, true, false]);
    assert!(is_first_in(dir.path(), "/none", own), "nobody can tell");
    let key = |is_first, begins: bool| {
        let mut service = process("/usr/bin/job", &["job"]);
        service.cgroup = Some("/system.slice/cron.service".into());
        service.is_first = is_first;
        service.is_service_if(|_| begins);
        service.key().unwrap().to_string()
    };
    assert_eq!(key(true, false), "cron.service");
    assert_eq!(key(false, true), "cron.service", "ExecStartPost=");
}

#[test]
fn an_interpreter_is_no_plain_program() {
    let cat = process("/usr/bin/cat", &["cat", "file"]);
    assert!(cat.is_plain(&cat.key().unwrap()));
    let python = process("/usr/bin/python3", &["python3"]);
    assert!(python.key().is_none_or(|key| !python.is_plain(&key)));
    let script = process("/usr/bin/python3", &["python3", "/usr/bin/script"]);
    assert!(!script.is_plain(&script.key().unwrap()));
}

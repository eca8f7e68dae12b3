//! The daemon's units under systemd, in a virtual machine of Debian 13: they start, a program that waits for
//! its disk is learned at its first start and read ahead at its second, and who asks by the socket is
//! answered. In a run of all tests only: it takes minutes.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::boots::Boots;
use headstart_lab::paths;
use headstart_lab::registry::Registry;

const UNITS: [(&str, &str); 2] = [
    (
        "headstartd.service",
        include_str!("../../../../packaging/systemd/headstartd.service"),
    ),
    (
        "headstartd.socket",
        include_str!("../../../../packaging/systemd/headstartd.socket"),
    ),
];

/// Waits until its own start is over, of which what it executes is a part; then starts a program three times,
/// cold each time, the clock put back two years before the second and on by one before the third, and tells
/// on the console what came of it. The daemon finishes a start some seconds after its end.
const USED: &str = r#"[Unit]
After=headstartd.service
Before=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:/dev/console
StandardError=file:/dev/console
ExecStart=/bin/sh -c "sleep 8; for n in 1 2 3; do [ $$n = 1 ] || date -s \"$$((3 * n - 8)) year\"; sync; echo 3 >/proc/sys/vm/drop_caches; systemd-analyze calendar daily >/dev/null; sleep 8; done; \
  headstart apps show /usr/bin/systemd-analyze | sed 's/^/app: /'; \
  varlinkctl call /run/headstart.socket org.varlink.service.GetInfo {} | sed 's/^/varlink: /'; \
  systemctl show headstartd -p ActiveState,NRestarts,Result | sed 's/^/unit: /'; \
  journalctl -b -u headstartd --no-pager -o cat | sed 's/^/log: /'"
"#;

#[test]
#[ignore = "make test-all runs it"]
fn the_units_learn_and_read_ahead_in_a_virtual_machine() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let mut boots = Boots::new("debian13", "flash4ms", &registry)?;
    let system = "$R/etc/systemd/system";
    for (name, text) in UNITS {
        boots.shell(&format!("cat >{system}/{name} <<'END'\n{text}END"))?;
    }
    boots.shell(&format!(
        "systemctl --root=$R enable headstartd.service headstartd.socket\n\
         cat >{system}/used.service <<'END'\n{USED}END\n\
         ln -s ../used.service {system}/multi-user.target.wants/used.service"
    ))?;
    let (said, _) = boots.boot().context("a boot with the daemon")?;
    let told = |word: &str| -> Vec<&str> { said.lines().filter(|line| line.contains(word)).collect() };
    for word in ["app: ", "varlink: ", "unit: ", "log: "] {
        println!("{:#?}", told(word));
    }
    ensure!(
        told("unit: ")
            .iter()
            .any(|line| line.contains("ActiveState=active"))
            && told("unit: ").iter().any(|line| line.contains("NRestarts=0")),
        "the unit runs, and has not failed"
    );
    ensure!(
        told("varlink: ")
            .iter()
            .any(|line| line.contains("headstart.Control")),
        "varlinkctl is answered"
    );
    let replays = told("app: ").iter().any(|line| {
        line.split_once(" with a replay")
            .and_then(|(before, _)| before.rsplit(' ').next())
            .and_then(|number| number.parse::<u64>().ok())
            .is_some_and(|number| number > 1)
    });
    ensure!(
        replays,
        "the second and third start are read ahead for, whatever the clock says: {:?}",
        told("app: ")
    );
    Ok(())
}

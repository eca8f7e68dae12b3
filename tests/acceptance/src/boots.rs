//! Machines that boot with headstart in them, for tests that cut them off or starve them.

use crate::headstart;
use anyhow::{Context, Result, bail};
use headstart_lab::image::{Fs, Recipe};
use headstart_lab::machine::{Booting, Machine, Place, Spec};
use headstart_lab::model::Model;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_lab::setup::Setup;
use headstart_model::plan::PlanFile;
use headstart_model::{Outcome, Profile, Trace};
use headstart_store::Turns;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a boot left on the console, and what is kept of boots in its image.
const CONSOLE: &str = "console.log";

/// For [`Boots::shell`]: boots begin to be served in the initramfs, if there is one.
pub const FROM_INITRAMFS: &str = "test ! -x $R/usr/sbin/update-initramfs || { \
     mount -t proc proc $R/proc; chroot $R update-initramfs -u -k all >&2; umount $R/proc; }";
/// For [`Boots::shell`], before that: the initramfs checks the root, as an installed system's does.
pub const ROOT_CHECKED: &str =
    "test ! -d $R/etc/initramfs-tools || echo FSTYPE=ext4 >$R/etc/initramfs-tools/conf.d/check";

/// A unit that tells on the console what headstart has to say when it has served the boot, whether a unit or
/// an initramfs began it, and how many files it left in /run: none if the boot was bypassed. After logind,
/// which the machine is shut down by.
const SERVED: &str = r#"[Unit]
After=multi-user.target systemd-logind.service
[Service]
ExecStart=/bin/sh -c "flock /run/headstart/boot.lock true; headstart boot status 2>&1 | sed 's/^/status: /' >/dev/console; echo ran: $$(ls /run/headstart 2>/dev/null | wc -l) >/dev/console; echo headstart has served this boot >/dev/console"
"#;

/// A machine with headstart enabled in its image.
pub struct Boots {
    /// The machine.
    pub machine: Booting,
    /// Where its writes are kept.
    pub place: Place,
    /// How it is booted.
    pub setup: Setup,
    spec: Spec,
    console: PathBuf,
    copy: PathBuf,
    _directory: tempfile::TempDir,
}

/// What was found in a state directory, all of which could be read.
#[derive(Debug, Default)]
pub struct State {
    /// Whether the boot-failure guard is set.
    pub armed: bool,
    /// The file that has boots bypassed, as it is written; empty while they are not.
    pub bypass: String,
    /// The report of the last boot, as JSON text.
    pub last: String,
    /// Whether there is a profile and a plan.
    pub profile: bool,
    /// See `profile`.
    pub plan: bool,
    /// How many traces and outcomes there are.
    pub traces: usize,
    /// See `traces`.
    pub outcomes: usize,
    /// Where boots stand between control runs.
    pub turns: Turns,
    /// The outcome of the last boot that left one.
    pub outcome: Option<Outcome>,
    /// Temporary files that a writer left.
    pub temporary: usize,
    /// Bytes of everything.
    pub bytes: u64,
}

fn say(step: &str) {
    eprintln!("boots: {step}");
}

/// A line of words, as commands of setups are.
pub fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

impl Boots {
    /// The machine of a recipe (a name or a file), on a disk model, with headstart enabled and every boot
    /// read ahead.
    pub fn new(recipe: &str, disk: &str, registry: &Registry) -> Result<Boots> {
        let mut boots = Boots::bare(recipe, disk, registry)?;
        boots.install(&[
            "install -D -m 755 {headstart} {root}/usr/bin/headstart",
            "install -D -m 755 -t {root}/usr/libexec/headstart {headstart}-inspect {headstart}-layout",
            "{headstart} boot enable --root {root}",
            "mkdir -p {root}/etc/headstart",
        ])?;
        boots.shell("printf '[boot]\\ncontrol_every = 0\\n' >$R/etc/headstart/headstart.toml")?;
        boots.at_end("served", SERVED)?;
        Ok(boots)
    }

    /// Takes the configuration away, so that headstart asks before a boot what it asks on most machines.
    pub fn unconfigure(&mut self) -> Result<()> {
        self.shell("rm -r $R/etc/headstart")
    }

    /// The same without headstart: [`at_end`](Boots::at_end) is to tell when a boot has come to its end.
    pub fn bare(recipe: &str, disk: &str, registry: &Registry) -> Result<Boots> {
        let base = paths::base()?;
        let recipe = Recipe::load(recipe)?;
        let kind = recipe.boot.as_ref().context("a recipe that boots")?.machine;
        let console = base.join(CONSOLE);
        let name = recipe.name.clone();
        let spec = Spec {
            kind,
            recipe,
            fs: Fs::Ext4,
            model: Model::load(disk)?,
            memory_mb: None,
            processors: None,
            answer: None,
            limit: Duration::from_secs(240),
            output: console.clone(),
            base: base.clone(),
        };
        let setup = Setup::load("none")?;
        headstart_lab::machine::check(&spec, &setup)?;
        let machine = Booting::open(&spec, registry, &say)?;
        let directory = tempfile::tempdir_in(&base)?;
        let place = Place {
            state: directory.path().join("state"),
            headstart: headstart()?,
            workload: name,
            disk: String::new(),
            at_once: false,
            profile: None,
        };
        let copy = directory.path().join("copy");
        Ok(Boots {
            machine,
            spec,
            place,
            setup,
            console,
            copy,
            _directory: directory,
        })
    }

    /// Adds a unit of this name to the boot's end.
    pub fn at_end(&mut self, name: &str, unit: &str) -> Result<()> {
        let system = "$R/etc/systemd/system";
        let wants = format!("{system}/multi-user.target.wants");
        self.shell(&format!(
            "cat >{system}/{name}.service <<'END'\n{unit}END\nmkdir -p {wants}; ln -s ../{name}.service {wants}/{name}.service"
        ))
    }

    /// Copies a file or directory of the image, named from its root, to a place of the host that is not there
    /// yet; what it holds stays.
    pub fn copy_out(&mut self, path: &str, to: &Path) -> Result<()> {
        let copy = words(&["cp", "-a", &format!("{{root}}{path}"), &to.to_string_lossy()]);
        self.machine.inspect(&self.place, &[copy])?;
        Ok(())
    }

    /// Has the disk follow another model from now on; what it holds stays.
    pub fn change_disk(&mut self, model: &str, registry: &Registry) -> Result<()> {
        self.spec.model = Model::load(model)?;
        self.machine = Booting::open(&self.spec, registry, &say)?;
        Ok(())
    }

    /// Runs commands on the host, words apart by spaces, with the root at `{root}`; what they write stays.
    pub fn install(&mut self, lines: &[&str]) -> Result<()> {
        let commands: Vec<_> = lines
            .iter()
            .map(|line| line.split_whitespace().map(String::from).collect())
            .collect();
        self.machine.install(&self.place, &commands)
    }

    /// Runs a shell script on the host with the root at `$R`; what it writes stays.
    pub fn shell(&mut self, script: &str) -> Result<()> {
        // A file, for what stands between braces in a command line is filled in.
        let file = self.copy.with_file_name("script");
        fs::write(&file, format!("R=$1\n{script}\n"))?;
        let line = words(&["sh", "-e", &file.to_string_lossy(), "{root}"]);
        self.machine
            .install(&self.place, &[line])
            .with_context(|| format!("running `{script}`"))
    }

    /// A whole boot, shut down in order: what the console said, and the seconds until the last mark.
    pub fn boot(&mut self) -> Result<(String, f64)> {
        self.boot_and(true)
    }

    /// As [`Boots::boot`], or switched off at the last mark, all it wrote forgotten.
    pub fn boot_and(&mut self, orderly: bool) -> Result<(String, f64)> {
        let _ = fs::remove_file(&self.console);
        let booted = match orderly {
            true => self.machine.record(&self.setup, &self.place, None),
            false => self.machine.run(&self.setup, &self.place),
        };
        let said = fs::read_to_string(&self.console).unwrap_or_default();
        match booted {
            Ok(measured) => Ok((said, measured.marks.last().map_or(0.0, |mark| mark.seconds))),
            Err(error) => {
                let end: Vec<&str> = said.lines().rev().take(15).collect();
                let end: Vec<&str> = end.into_iter().rev().collect();
                Err(error.context(format!("the console's last lines:\n{}", end.join("\n"))))
            }
        }
    }

    /// The state directory as it is on the disk now, after the journal's recovery; the disk itself stays as
    /// it is.
    pub fn state(&mut self) -> Result<State> {
        let _ = fs::remove_dir_all(&self.copy);
        let copy = self.copy.clone();
        self.copy_out("/var/lib/headstart", &copy)?;
        whole(&copy)
    }
}

/// Reads every file of a state directory; an error names the first that cannot be read, or that nobody
/// writes.
pub fn whole(directory: &Path) -> Result<State> {
    let mut state = State::default();
    read(directory, &mut state)?;
    Ok(state)
}

fn read(directory: &Path, state: &mut State) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, state)?;
            continue;
        }
        let bytes = fs::read(&path)?;
        state.bytes += bytes.len() as u64;
        file(&path, bytes, state).with_context(|| format!("{} is not whole", path.display()))?;
    }
    Ok(())
}

fn file(path: &Path, bytes: Vec<u8>, state: &mut State) -> Result<()> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if path.parent().is_some_and(|parent| parent.ends_with("starts")) {
        if name.ends_with(".guard") {
            if bytes.len() != 4096 {
                bail!("it has {} bytes", bytes.len());
            }
            state.armed = bytes.first() == Some(&b'1');
        } else if !name.starts_with(".tmp-") {
            // A plan, and what the store puts behind it.
            let length = bytes
                .len()
                .checked_sub(headstart_store::START_TAIL)
                .context("it is cut off")?;
            PlanFile::new(bytes.get(..length).unwrap_or_default().to_vec()).plan()?;
        }
        return Ok(());
    }
    match name.as_str() {
        "profile" => {
            Profile::from_bytes(&bytes)?;
            state.profile = true;
        }
        "plan" => {
            PlanFile::new(bytes).plan()?;
            state.plan = true;
        }
        "last.json" => {
            let _: serde_json::Value = serde_json::from_slice(&bytes)?;
            state.last = String::from_utf8(bytes)?;
        }
        "turns" => state.turns = serde_json::from_slice(&bytes)?,
        "key" => {
            if bytes.is_empty() {
                bail!("it is empty");
            }
        }
        "bypass" => {
            state.bypass = String::from_utf8(bytes)?;
            if state.bypass.lines().count() != 5 {
                bail!("it has not five lines");
            }
        }
        "lock" | "log" => {}
        // How far it was looked for names of encrypted places.
        "secret-names" => {
            if !matches!(bytes.first(), Some(b'>' | b'!' | b'+' | b'?')) {
                bail!("it does not say how far it came");
            }
        }
        _ if name.starts_with(".tmp-") => state.temporary += 1,
        _ if name.ends_with(".trace") => {
            Trace::from_bytes(&bytes)?;
            state.traces += 1;
        }
        _ if name.ends_with(".outcome") => {
            let outcome = Outcome::from_bytes(&bytes)?;
            let began = |outcome: &Option<Outcome>| outcome.as_ref().map(|outcome| outcome.started_unix_ns);
            if began(&state.outcome) < Some(outcome.started_unix_ns) {
                state.outcome = Some(outcome);
            }
            state.outcomes += 1;
        }
        _ if name.ends_with(".json") => {
            let _: serde_json::Value = serde_json::from_slice(&bytes)?;
        }
        _ => bail!("nobody writes such a file"),
    }
    Ok(())
}

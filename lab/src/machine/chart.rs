//! `headstart-lab chart`: one cold start without and one with a replay, drawn beside one another by
//! headstart.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{LIMIT, Machine, Place, Spec, check, open};
use crate::image::{Fs, Recipe};
use crate::kind::Kind;
use crate::model::{Model, cost};
use crate::registry::Registry;
use crate::setup::Setup;
use crate::{paths, print};

/// What to draw.
#[derive(Debug, Args)]
pub struct ChartArgs {
    /// A built-in image (see `headstart-lab image list`), or a TOML file: its program starts, or it boots.
    pub workload: String,
    /// The picture: *.html or *.svg.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// A built-in disk model, or a TOML file.
    #[arg(long, default_value = "disk7200")]
    pub disk: String,
    /// The root's file system.
    #[arg(long, default_value = "ext4")]
    pub fs: Fs,
    /// Starts to learn from, before the one that is drawn; of boots, the first is the one that is drawn
    /// without a replay.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub learn: u32,
    /// Seconds after which a start has failed.
    #[arg(long, default_value_t = LIMIT.as_secs())]
    pub limit: u64,
    /// The headstart binary: for boots a static one, for it runs inside.
    #[arg(long)]
    pub headstart: Option<PathBuf>,
}

/// Draws boots on the host, inside the root that is mounted at `$1`: there files have the paths that the
/// traces tell. The picture is `$3` in the directory `$2`. All mounts go with the process that made them; the
/// first trace of the boot is that without a replay.
const DRAW_BOOTS: &str = r#"
set -e
for name in proc sys dev; do mount --rbind "/$name" "$1/$name"; done
mount --bind "$2" "$1/mnt"
mount -t tmpfs tmpfs "$1/tmp"
find "$1/var/lib/headstart" -name "*.trace" | sort >"$1/tmp/traces"
if [ "$(wc -l <"$1/tmp/traces")" -lt 2 ]; then
    echo "no boot with a replay was recorded" >&2
    chroot "$1" /usr/bin/headstart boot status >&2
    exit 1
fi
cp "$(head -n 1 "$1/tmp/traces")" "$1/tmp/none.trace"
exec chroot "$1" /usr/bin/headstart chart /tmp/none.trace --compare boot -o "/mnt/$3"
"#;

/// What boots are told to record.
const CONFIG: &str =
    r#"mkdir -p "$0/etc/headstart" && printf '[boot]\nchart = true\n' >"$0/etc/headstart/headstart.toml""#;

impl ChartArgs {
    /// Starts, learns, starts again and draws.
    pub fn run(&self, registry: &Registry) -> Result<()> {
        let recipe = Recipe::load(&self.workload)?;
        let kind = recipe.boot.as_ref().map_or(Kind::Chroot, |boot| boot.machine);
        let setup = Setup::load(match kind {
            Kind::Chroot => "headstart",
            Kind::Container => "boot-headstart-init",
            Kind::Vm => "boot-headstart",
        })?;
        let (directory, name) = self.picture()?;
        let headstart = match &self.headstart {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("headstart"),
        };
        let base = paths::base()?;
        let model = Model::load(&self.disk)?;
        let place = Place {
            state: base.join("by-hand").join("chart"),
            headstart: fs::canonicalize(&headstart)
                .with_context(|| format!("--headstart {}", headstart.display()))?,
            workload: recipe.name.clone(),
            disk: cost(&model),
            at_once: false,
            profile: None,
        };
        let spec = Spec {
            kind,
            recipe,
            fs: self.fs,
            model,
            memory_mb: None,
            processors: None,
            answer: None,
            limit: Duration::from_secs(self.limit),
            output: base.join("console.log"),
            base,
        };
        check(&spec, &setup)?;
        super::command::renew(&place, &spec.output)?;
        setup.write_files(&place.files())?;
        let machine = &mut *open(&spec, registry, &|step| print::note(step))?;
        match kind {
            Kind::Chroot => self.program(machine, &setup, &place, &directory.join(name)),
            Kind::Container | Kind::Vm => self.boots(machine, &setup, &place, &directory, name),
        }
        .with_context(|| format!("what was printed is in {}", spec.output.display()))?;
        print::line(self.output.display())
    }

    /// The directory of the picture, which has to exist, and its name there.
    fn picture(&self) -> Result<(PathBuf, &str)> {
        let shown = self.output.display();
        let Some(name) = self.output.file_name().and_then(|name| name.to_str()) else {
            bail!("-o {shown}: give the name of a file");
        };
        if !name.ends_with(".html") && !name.ends_with(".svg") {
            bail!("-o {shown}: the name of a picture ends in .html or .svg");
        }
        let directory = match self.output.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let directory = fs::canonicalize(directory).with_context(|| format!("-o {shown}"))?;
        Ok((directory, name))
    }

    fn program(&self, machine: &mut dyn Machine, setup: &Setup, place: &Place, picture: &Path) -> Result<()> {
        let none = "{headstart} record -o {state}/none.trace --chart -- {program}";
        let with = "{headstart} --state {state} run --chart --name {workload} -- {program}";
        print_measured("without", machine.record(setup, place, Some(&words(none)))?);
        for _ in 0..self.learn {
            print_measured("learning", machine.record(setup, place, None)?);
        }
        print_measured("with", machine.record(setup, place, Some(&words(with)))?);
        let mut draw = words("{headstart} --state {state} chart {state}/none.trace --compare {workload} -o");
        draw.push(picture.to_string_lossy().into_owned());
        print::note(machine.inspect(place, &[draw])?.trim_end());
        Ok(())
    }

    fn boots(
        &self,
        machine: &mut dyn Machine,
        setup: &Setup,
        place: &Place,
        directory: &Path,
        name: &str,
    ) -> Result<()> {
        let shell = |prefix: &[&str], script: &str, rest: &[&str]| -> Vec<String> {
            let words = [prefix, &["sh", "-c", script], rest].concat();
            words.into_iter().map(str::to_owned).collect()
        };
        let mut install = setup.install.clone();
        install.push(shell(&[], CONFIG, &["{root}"]));
        machine.install(place, &install)?;
        for boot in 0..=self.learn {
            let what = match boot {
                0 => "without",
                _ if boot == self.learn => "with",
                _ => "learning",
            };
            print_measured(what, machine.record(setup, place, None)?);
        }
        let directory = directory.to_string_lossy();
        let draw = shell(
            &["unshare", "-m"],
            DRAW_BOOTS,
            &["sh", "{root}", &directory, name],
        );
        print::note(machine.inspect(place, &[draw])?.trim_end());
        Ok(())
    }
}

fn print_measured(what: &str, measured: super::Measured) {
    print::note(format_args!("{what}: {}", super::command::line(&measured)));
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

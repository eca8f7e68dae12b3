//! Makes what packages install beside the programs: man pages and shell completions, of the same definitions
//! as `--help`, and the units. `cargo run -p headstart --example generate -- DIR` makes DIR/man,
//! DIR/completions and DIR/systemd.

mod keys;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use headstart_boot::units::units as all_units;
use headstart_daemon::units::units as units_of_daemon;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .context("give the directory to write to")?;
    let directory = PathBuf::from(directory);
    let mut command = headstart_user_commands::definition();
    let make = |name: &str| -> Result<PathBuf> {
        let directory = directory.join(name);
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(directory)
    };
    let (pages, completions) = (make("man")?, make("completions")?);
    let mut completed = without_help(command.clone());
    command.build();
    page(&command, "headstart", &pages)?;
    for sub in command.get_subcommands().filter(|sub| is_told(sub)) {
        page(sub, &format!("headstart-{}", sub.get_name()), &pages)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut completed, "headstart", &completions)
            .with_context(|| completions.display().to_string())?;
    }
    let write =
        |path: PathBuf, text: &[u8]| fs::write(&path, text).with_context(|| path.display().to_string());
    let rewrite = |name: &str, smaller: &dyn Fn(&str) -> String| -> Result<()> {
        let path = completions.join(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        write(path, smaller(&text).as_bytes())
    };
    let of_keys = keys::subcommands(&command);
    rewrite("headstart.fish", &|fish| keys::fish(one_help(fish), &of_keys))?;
    rewrite("headstart.bash", &|bash| {
        keys::bash(&without_indentation(bash), &of_keys)
    })?;
    rewrite("_headstart", &keys::zsh)?;
    let units = make("systemd")?;
    for (name, text) in all_units() {
        write(units.join(name), text.as_bytes())?;
    }
    for (name, text) in units_of_daemon() {
        write(units.join(name), text.as_bytes())?;
    }
    let (name, text) = headstart_layout::waiting::UNIT;
    write(units.join(name), text.as_bytes())?;
    Ok(())
}

/// Without the subcommand `help` and all that is below it, which is half of what shells would complete: there
/// is `--help`.
fn without_help(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help)
}

/// fish's completions with `--help` said once for all subcommands, instead of once for each.
fn one_help(fish: &str) -> String {
    let is_other = |line: &&str| !line.contains(" -s h -l help ");
    let others = fish.lines().filter(is_other).map(|line| format!("{line}\n"));
    others.collect::<String>()
        + "complete -c headstart -s h -l help -d 'Print help (see more with \\'--help\\')'\n"
}

/// bash's completions without the blanks that lines begin with, which are more than half of them.
fn without_indentation(bash: &str) -> String {
    bash.lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect()
}

fn page(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    let subs: Vec<&Command> = command.get_subcommands().filter(|sub| is_told(sub)).collect();
    // The page's own name; a static string, as clap wants one.
    let named = command.clone().name(String::leak(name.to_string()) as &str);
    let man = clap_mangen::Man::new(named)
        .title(name.to_uppercase())
        .source(concat!("headstart ", env!("CARGO_PKG_VERSION")))
        .manual("headstart");
    let rendered = if name == "headstart" || subs.is_empty() {
        man.render(&mut text)
    } else {
        // They have no pages of their own.
        man.render_title(&mut text)
            .and_then(|()| man.render_name_section(&mut text))
            .and_then(|()| man.render_synopsis_section(&mut text))
            .and_then(|()| man.render_description_section(&mut text))
            .and_then(|()| man.render_options_section(&mut text))
            .and_then(|()| subs.iter().try_for_each(|sub| section(sub, &mut text)))
    };
    rendered
        .and_then(|()| text.write_all(END.as_bytes()))
        .and_then(|()| fs::write(&path, text))
        .with_context(|| path.display().to_string())
}

fn is_told(sub: &Command) -> bool {
    !sub.is_hide_set() && sub.get_name() != "help"
}

/// What a subcommand of a subcommand does, as a section: how it is called, what for, and the options that are
/// its own.
fn section(sub: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    let own = sub.clone().mut_args(|arg| {
        let common = ["state", "help"].contains(&arg.get_id().as_str());
        let hidden = common || arg.is_hide_set();
        arg.hide(hidden)
    });
    let man = clap_mangen::Man::new(own);
    let (mut synopsis, mut description, mut options) = (Vec::new(), Vec::new(), Vec::new());
    man.render_synopsis_section(&mut synopsis)?;
    man.render_description_section(&mut description)?;
    man.render_options_section(&mut options)?;
    writeln!(text, ".SH {}", sub.get_name().to_uppercase())?;
    for (number, part) in [synopsis, description, options].iter().enumerate() {
        let lines = String::from_utf8_lossy(part);
        // Without the heading, and what stands before it.
        let body = lines
            .split_once("\n.SH ")
            .and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((_, body)) = body.filter(|(_, body)| !body.trim().is_empty()) {
            write!(text, "{}{body}", if number == 1 { ".PP\n" } else { "" })?;
        }
    }
    Ok(())
}

/// The sections that all pages end with.
const END: &str = r".SH EXIT STATUS
0 done, 1 could not (one line on standard error says what and the way out), 2 wrong usage. \fBrun\fR and
\fBrecord\fR end as their command does: with its exit status, or by the signal that killed it; with 127 or 126 if it
was not found or could not be executed.
.SH ENVIRONMENT
.TP
HEADSTART_STATE
The state directory, as \-\-state gives it.
.TP
HEADSTART_EVEN_WARM
If set: with \-\-control\-every 0 also starts that find in memory what they read are read ahead for. For tests and measurements.
.TP
HEADSTART_SYNC
If set, and not to 0, no or false: \fBrun\fR returns only when all is learned, as with \-\-wait.
.SH FILES
.TP
/run/headstart.socket
Where the daemon is asked, by varlink.
.TP
/var/lib/headstart
The state directory of root; of others $XDG_STATE_HOME/headstart or ~/.local/state/headstart. Background work that
fails says so in its file log.
.SH SEE ALSO
\fBheadstart\fR(1), \fBheadstart\-trace\fR(5), \fBheadstart\-profile\fR(5), \fBheadstart\-plan\fR(5),
\fBheadstart\-outcome\fR(5), \fBheadstart.toml\fR(5)
";

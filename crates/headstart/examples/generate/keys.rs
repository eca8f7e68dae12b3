//! Completion of keys: what shells offer where a subcommand takes one, asked of `headstart keys`.

use clap::Command;

/// The subcommands that take keys, by their names on the way.
pub fn subcommands(command: &Command) -> Vec<Vec<String>> {
    let takes_keys = |sub: &Command| {
        let mut names = sub
            .get_positionals()
            .flat_map(|arg| arg.get_value_names().unwrap_or_default());
        names.any(|name| name.contains("KEY"))
    };
    let mut found = Vec::new();
    for sub in command.get_subcommands() {
        let name = sub.get_name().to_owned();
        if takes_keys(sub) {
            found.push(vec![name.clone()]);
        }
        let below = sub.get_subcommands().filter(|below| takes_keys(below));
        found.extend(below.map(|below| vec![name.clone(), below.get_name().to_owned()]));
    }
    found
}

const BASH: &str = "_headstart_keys() {
local key
while IFS= read -r key; do
[[ ${key} == \"${cur}\"* ]] && COMPREPLY+=(\"$(printf %q \"${key}\")\")
done < <(headstart keys 2>/dev/null)
}
";

/// bash's completions with keys.
pub fn bash(bash: &str, of_keys: &[Vec<String>]) -> String {
    let mut text = BASH.to_owned();
    let mut takes_keys = false;
    let cases: Vec<String> = of_keys
        .iter()
        .map(|names| format!("headstart__subcmd__{})", names.join("__subcmd__")))
        .collect();
    for line in bash.lines() {
        if line.starts_with("headstart__") && line.ends_with(')') {
            takes_keys = cases.iter().any(|case| case == line);
        }
        text += line;
        let offers = line == "COMPREPLY=()" || line.starts_with("COMPREPLY=( $(compgen -W \"${opts}\"");
        if takes_keys && offers {
            text += "\n_headstart_keys";
        }
        text.push('\n');
    }
    text
}

/// zsh's completions with keys.
pub fn zsh(zsh: &str) -> String {
    let mut text = String::new();
    for line in zsh.lines() {
        let takes_keys = ["'::key -- ", "':key -- ", "'*::keys -- "];
        match takes_keys.iter().any(|begins| line.starts_with(begins)) {
            true => text += &line.replace(":_default'", ":_headstart_keys'"),
            false => text += line,
        }
        text.push('\n');
        // The first line says what the file completes.
        if text.len() == line.len() + 1 {
            text += "\n_headstart_keys() {\n    local -a keys\n    keys=(\"${(@f)$(headstart keys 2>/dev/null)}\")\n    compadd -a keys\n}\n";
        }
    }
    text
}

/// fish's completions with keys.
pub fn fish(mut fish: String, of_keys: &[Vec<String>]) -> String {
    for names in of_keys {
        let condition = match &names[..] {
            [first, second] => {
                format!("__fish_headstart_using_subcommand {first}; and __fish_seen_subcommand_from {second}")
            }
            _ => format!("__fish_headstart_using_subcommand {}", names[0]),
        };
        fish += &format!("complete -c headstart -n \"{condition}\" -f -a \"(headstart keys 2>/dev/null)\"\n");
    }
    fish
}

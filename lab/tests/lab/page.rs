//! The pages of figures: made of kept results and templates, and never stale.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
    command.args(arguments).current_dir(directory).output().unwrap()
}

fn given() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report")
}

/// The runs of `tests/report` with goals and a host, under another name if need be.
fn runs(directory: &Path, name: &str) {
    fs::create_dir_all(directory).unwrap();
    for name in ["runs.jsonl", "floors.json"] {
        fs::copy(given().join(name), directory.join(name)).unwrap();
    }
    let text = fs::read_to_string(given().join("experiment.json")).unwrap();
    let goals = r#""goals": [
        {"setup": "tool", "figure": "L", "at_most": 2.005},
        {"setup": "tool", "figure": "more-read", "at_most": 0.1},
        {"setup": "tool", "case": "plain", "figure": "ratio", "at_most": 0.3}
    ],
    "host": {"kernel": "6.12.0", "processors": 2, "processor": "", "virtual_machine": true, "memory_mib": 4096},
    "kernel""#;
    let text = text
        .replace("\"kernel\"", goals)
        .replace("\"fixed\"", &format!("\"{name}\""));
    fs::write(directory.join("experiment.json"), text).unwrap();
}

/// A project with two experiments kept, of the same commit.
fn project() -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    let root = project.path();
    for name in ["fixed", "demo"] {
        runs(&root.join(name), name);
        keep(root, name, "0123456789ab");
    }
    fs::write(
        root.join("docs/measurements.in.md"),
        "{{measured}} On {{host}}.\n\n{{missed furthest}}\n\n{{brief fixed tool}}\n\n| | measured | goal | build |\n|---|---|---|---|\n| plain | {{judged fixed tool plain}} |\n\n[All of it](measurements/fixed.md)\n",
    )
    .unwrap();
    fs::create_dir(root.join("docs/measurements")).unwrap();
    fs::write(
        root.join("docs/measurements/fixed.in.md"),
        "{{measured}}\n\n{{missed}}\n\n{{picture fixed tool}}\n\n{{speed fixed tool}}\n\n{{above fixed tool}}\n\n{{cost fixed tool}}\n",
    )
    .unwrap();
    fs::write(
        root.join("README.md"),
        "# x\n<!-- picture: made -->\n<!-- /picture -->\ntext\n<!-- output: made -->\nold\n<!-- /output -->\n",
    )
    .unwrap();
    project
}

fn keep(root: &Path, name: &str, commit: &str) {
    let output = lab(
        &["keep", name, "--commit", commit, "--earlier", "ba9876543210"],
        root,
    );
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_pages_are_what_the_kept_results_and_templates_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = lab(&["page", "--check"], root);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_pages_of_given_runs_are_as_they_should_be() {
    let project = project();
    let root = project.path();
    assert!(said(&lab(&["page", "--check"], root)).contains("measurements.md is stale"));
    let output = lab(&["page"], root);
    assert!(output.status.success(), "{output:?}");
    let made = ["docs/measurements.md", "docs/measurements/fixed.md", "README.md"];
    let made = made.map(|name| fs::read_to_string(root.join(name)).unwrap());
    assert_eq!(
        made.join("----\n"),
        fs::read_to_string(given().join("page.md")).unwrap()
    );
    let picture = fs::read_to_string(root.join("docs/demo.svg")).unwrap();
    assert!(
        picture.contains(">cold</text>") && picture.contains("10.30 s"),
        "{picture}"
    );
    assert!(lab(&["page", "--check"], root).status.success());
    let bars = root.join("docs/results/fixed.svg");
    let text = fs::read_to_string(&bars).unwrap();
    for word in [
        ">cold</text>",
        ">tool</text>",
        ">warm</text>",
        ">plain</text>",
        ">4.12 s</text>",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    fs::write(&bars, text.replace(">4.12 s</text>", ">3.12 s</text>")).unwrap();
    assert!(said(&lab(&["page", "--check"], root)).contains("fixed.svg is stale"));
}

#[test]
fn a_page_is_stale_when_a_kept_figure_changes() {
    let project = project();
    let root = project.path();
    assert!(lab(&["page"], root).status.success());
    let kept = root.join("docs/results/fixed.toml");
    let text = fs::read_to_string(&kept).unwrap();
    assert!(text.contains("median_s = 4.12"), "{text}");
    fs::write(&kept, text.replace("median_s = 4.12", "median_s = 3.12")).unwrap();
    let error = said(&lab(&["page", "--check"], root));
    assert!(
        error.contains("measurements.md is stale") && error.contains("headstart-lab page"),
        "{error}"
    );
}

#[test]
fn a_page_behind_the_first_is_there_and_is_what_its_template_makes() {
    let project = project();
    let root = project.path();
    assert!(lab(&["page"], root).status.success());
    let page = root.join("docs/measurements/fixed.md");
    let text = fs::read_to_string(&page).unwrap();
    fs::write(&page, text + "more\n").unwrap();
    assert!(said(&lab(&["page", "--check"], root)).contains("measurements/fixed.md is stale"));
    fs::remove_file(&page).unwrap();
    assert!(said(&lab(&["page", "--check"], root)).contains("measurements/fixed.md is stale"));
    assert!(lab(&["page"], root).status.success());
    assert!(lab(&["page", "--check"], root).status.success());
}

#[test]
fn a_page_behind_the_first_has_a_template_and_a_link() {
    let project = project();
    let root = project.path();
    let behind = root.join("docs/measurements");
    fs::write(behind.join("odd.md"), "x\n").unwrap();
    let error = said(&lab(&["page", "--check"], root));
    assert!(error.contains("odd.md has no template odd.in.md"), "{error}");
    fs::write(behind.join("odd.in.md"), "x\n").unwrap();
    let error = said(&lab(&["page", "--check"], root));
    assert!(error.contains("measurements.md has no link to"), "{error}");
}

#[test]
fn a_table_of_another_build_says_so() {
    let project = project();
    let root = project.path();
    let template = root.join("docs/measurements/fixed.in.md");
    let text = fs::read_to_string(&template).unwrap();
    fs::write(&template, text + "\n{{setups other}}\n").unwrap();
    runs(&root.join("other"), "other");
    keep(root, "other", "ffffffffffff");
    assert!(lab(&["page"], root).status.success());
    let page = fs::read_to_string(root.join("docs/measurements/fixed.md")).unwrap();
    assert!(page.starts_with("Measured with build 0123456789ab on"), "{page}");
    let (of_the_page, other) = page.split_once("Measured with build ffffffffffff on").unwrap();
    assert!(
        of_the_page.contains("cold, s") && !of_the_page.contains("requests |"),
        "{page}"
    );
    assert!(other.contains("requests |"), "{page}");
}

#[test]
fn shares_of_another_setups_gain_are_bold_where_the_goal_is_missed() {
    let project = project();
    let root = project.path();
    let file = root.join("fixed/experiment.json");
    let text = fs::read_to_string(&file).unwrap();
    let goals = [("plain", 0.2), ("office", 0.3)].map(|(case, at_most)| {
        let goal = r#""setup": "tool", "figure": "gain-lost", "of": "warm""#;
        format!("{{{goal}, \"case\": \"{case}\", \"at_most\": {at_most}}},\n")
    });
    fs::write(
        &file,
        text.replace("\"goals\": [", &format!("\"goals\": [{}", goals.concat())),
    )
    .unwrap();
    keep(root, "fixed", "0123456789ab");
    let template = root.join("docs/measurements/fixed.in.md");
    fs::write(&template, "{{measured}}\n\n{{missed}}\n\n{{shares fixed warm}}\n").unwrap();
    let text = page(root, "measurements/fixed.md");
    for part in [
        "| plain (fixed: tool) | gain lost | 25 % (14…25) | ≤ 20 % |",
        "| | none, s | warm, s | tool (≥ 80 %) |\n|---|---|---|---|\n| plain | 10.30 | 2.05 | **75 % (75…86)** |\n\
         | office | 20.50 | 4.08 | 75 % (75…75) |\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    fs::write(&template, "{{measured}}\n\n{{shares nothing warm}}\n").unwrap();
    let text = page(root, "measurements/fixed.md");
    assert_eq!(
        text.matches("Not measured: `make measure` does it.").count(),
        2,
        "{text}"
    );
}

#[test]
fn the_demo_is_of_the_build_that_the_page_is_of() {
    let project = project();
    keep(project.path(), "demo", "ffffffffffff");
    let error = said(&lab(&["page"], project.path()));
    assert!(
        error.contains("ffffffffffff") && error.contains("0123456789ab"),
        "{error}"
    );
}

/// A page that compares `fixed`, and what nobody has measured.
fn comparing(root: &Path) {
    fs::create_dir_all(root.join("lab/experiments")).unwrap();
    fs::write(
        root.join("lab/experiments/other.toml"),
        "question = \"Is it slower elsewhere?\"\n",
    )
    .unwrap();
    fs::write(
        root.join("docs/never.in.md"),
        "{{answer}}\n\n{{ratios of the page}}\n\n{{ratios fixed tool}}\n\n{{ratios other tool}}\n\n{{live live}}\n\n{{days days}}\n\n{{output month}}\n",
    )
    .unwrap();
    let front = root.join("docs/measurements.in.md");
    let text = fs::read_to_string(&front).unwrap();
    fs::write(&front, text + "[never](never.md)\n").unwrap();
}

fn page(root: &Path, name: &str) -> String {
    let output = lab(&["page"], root);
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(root.join("docs").join(name)).unwrap()
}

#[test]
fn a_page_that_compares_names_what_was_not_measured() {
    let project = project();
    let root = project.path();
    comparing(root);
    let text = page(root, "never.md");
    for part in [
        "0 of 1 comparisons that were measured meet their goals. Experiments not made yet: 1.",
        "| plain (fixed: tool) | ratio to bare | 0.400 (0.242…0.400) | ≤ 0.300 |",
        "| | n | without, s | with, s (least–most) | ratio (95 %) | goal |\n|---|---|---|---|---|---|\n\
         | plain | 5 | 10.30 | 4.12 (4.00–4.16) | **0.400 (0.242…0.400)** | ≤ 0.300 |\n",
        "*Not measured yet:* Is it slower elsewhere?\n",
        "*Not measured yet:* Is a day of use slower",
        "(results/never.svg)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("*Not measured yet:*").count(), 4, "{text}");
    let picture = fs::read_to_string(root.join("docs/results/never.svg")).unwrap();
    for part in [">plain (fixed)<", "class=\"missed\"", ">0.40<"] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    assert!(lab(&["page", "--check"], root).status.success());
}

#[test]
fn what_is_measured_later_appears_by_itself() {
    let project = project();
    let root = project.path();
    comparing(root);
    let before = page(root, "never.md");
    let results = root.join("docs/results");
    let lists = [
        (
            "live.csv",
            "# Build x.\nmedium,memory_mb,order,way,seconds\nstick,256,default,none,9\nstick,256,default,headstart,8\n",
        ),
        (
            "knoppix.csv",
            "# published\nmemory_mb,plain_s,readahead_s\n256,228,247\n",
        ),
        (
            "days.csv",
            "# Build x.\nsetup,day,program,ms\nnone,1,a,1000\ndaemon,1,a,900\n",
        ),
        ("month.md", "Simulated.\n\n| a | b |\n"),
    ];
    for (name, text) in lists {
        fs::write(results.join(name), text).unwrap();
    }
    assert!(said(&lab(&["page", "--check"], root)).contains("never.md is stale"));
    let text = page(root, "never.md");
    for part in [
        "| stick, 256 MiB |",
        "| daemon | 1 |",
        "| a | b |",
        "(results/live.svg)",
    ] {
        assert!(!before.contains(part) && text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("*Not measured yet:*").count(), 1, "{text}");
    assert!(results.join("live.svg").exists());
    fs::write(results.join("live.csv"), "medium\n").unwrap();
    assert!(said(&lab(&["page"], root)).contains("live"));
}

#[test]
fn a_page_beside_the_first_has_a_link() {
    let project = project();
    let root = project.path();
    fs::write(root.join("docs/odd.in.md"), "x\n").unwrap();
    assert!(said(&lab(&["page"], root)).contains("measurements.md has no link to"));
}

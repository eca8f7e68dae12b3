//! What `headstart bench` measured, in six lines, and as one HTML page.

use crate::chart::xml;
use crate::human::{bytes, duration, printable};
use crate::table::{COLUMNS, Table, sentences};
use headstart_bench::report::{Boots, ColdBy, End, Report};
use headstart_bench::rule::{Difference, Finding, is_unsettled};
use headstart_bench::statistics::median;

/// Of so much that stayed in memory it is said that cold starts were not quite cold.
const MUCH_STAYED: f64 = 0.02;

/// For people.
pub fn text(report: &Report) -> String {
    let mut table = Table::new(&["", ""]);
    for (name, value) in lines(report) {
        table.row([name, &value]);
    }
    let mut out = table.to_string();
    let notes = notes(report);
    if !notes.is_empty() {
        out.push('\n');
        out += &sentences(COLUMNS, notes.iter().map(|note| ("", note.clone())));
    }
    out
}

/// The six lines: what each is called, and what it says.
fn lines(report: &Report) -> [(&'static str, String); 6] {
    [
        ("cold", times(&report.cold)),
        ("with headstart", times(&report.with_headstart)),
        ("warm", times(&report.warm)),
        (
            "saved",
            saved(
                &report.saved,
                report.finding,
                (&report.cold, &report.with_headstart),
                "cold start",
            ),
        ),
        ("at best", at_best(report)),
        ("what is left", left(report)),
    ]
}

fn seconds(seconds: f64) -> String {
    duration((seconds.max(0.0) * 1e9).round() as u64)
}

fn times(times: &[f64]) -> String {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    match times.len() {
        0 => "not measured".into(),
        1 => seconds(times[0]),
        count => format!(
            "{} (median of {count} starts, {} to {})",
            seconds(median(times)),
            seconds(least),
            seconds(most)
        ),
    }
}

/// What boots have shown so far, for people.
pub fn boots_text(boots: &Boots) -> String {
    let next = match boots.left {
        0 => "all that were to be measured have been".to_owned(),
        _ if !boots.is_known => {
            "the next boot teaches what a boot reads; those after it are measured".to_owned()
        }
        left => format!("{left} more are measured, read ahead and not in turns"),
    };
    let mut table = Table::new(&["", ""]);
    table.row(["not read ahead", &times(&boots.not_read_ahead)]);
    table.row(["read ahead", &times(&boots.read_ahead)]);
    table.row([
        "saved",
        &saved(
            &boots.saved,
            boots.finding,
            (&boots.not_read_ahead, &boots.read_ahead),
            "boot",
        ),
    ]);
    table.row(["next boots", &next]);
    table.to_string()
}

fn saved(found: &Option<Difference>, finding: Finding, times: (&[f64], &[f64]), what: &str) -> String {
    let Some(found) = found else {
        return "too few starts to tell".into();
    };
    // A start that takes longer has lost; both ends of the interval are told alike.
    let (sign, [low, high]) = match finding {
        Finding::Slower => (-1.0, [-found.interval[1], -found.interval[0]]),
        _ => (1.0, found.interval),
    };
    let signed = |value: f64| match value < 0.0 {
        true => format!("-{}", seconds(-value)),
        false => seconds(value),
    };
    let interval = format!("95 % sure: {} to {}", signed(low), signed(high));
    let amount = signed(sign * found.seconds);
    match finding {
        Finding::NoDifference if is_unsettled(times.0, times.1) => {
            format!("not sure after so few starts, {amount} perhaps ({interval})")
        }
        Finding::NoDifference => format!("no difference seen ({interval})"),
        Finding::Faster => {
            let share = 100.0 * found.seconds / median(times.0);
            format!("{amount}, {share:.0} % of a {what} ({interval})")
        }
        Finding::Slower => format!("nothing: it takes {amount} longer ({interval})"),
    }
}

fn at_best(report: &Report) -> String {
    let Some(floor) = &report.floor else {
        return "not known".into();
    };
    let read = match floor.read_ns {
        ns if ns < floor.floor_ns / 20 => "it computes so long, and all can be read meanwhile".to_owned(),
        ns => format!("the devices need {} for what it reads first", duration(ns)),
    };
    format!(
        "{}: {read} ({} in all)",
        duration(floor.floor_ns),
        bytes(floor.bytes)
    )
}

fn left(report: &Report) -> String {
    if report.with_headstart.is_empty() {
        return "not known".into();
    }
    let with = median(&report.with_headstart);
    let Some(floor) = &report.floor else {
        return format!("{} above a warm start", seconds(with - median(&report.warm)));
    };
    let above = with - floor.floor_ns as f64 / 1e9;
    let most = report
        .above
        .and_then(|above| above.parts().into_iter().max_by_key(|(_, ns)| *ns))
        .filter(|(_, ns)| *ns > 0);
    match most {
        _ if above <= 0.0 => "nothing: it is as fast as it can be by reading ahead".into(),
        Some((cause, ns)) => format!("{}, most of it {cause} ({})", seconds(above), duration(ns)),
        None => seconds(above),
    }
}

/// What one has to know to believe it.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.end == End::Quiet {
        notes.push(
            "A start ended when the program had been quiet for 2 s; it was then asked to close.".to_owned(),
        );
    }
    let pages = &report.pages;
    if report.cold_by == ColdBy::Files {
        notes.push(
            "Cold: the pages of its files were not in memory. Directories and inodes were; with \
             --drop-caches they are not, and the caches of the whole machine are dropped."
                .to_owned(),
        );
    }
    if pages.stayed as f64 > MUCH_STAYED * pages.wanted as f64 {
        let files: Vec<String> = pages
            .files_that_stayed
            .iter()
            .map(|file| printable(file))
            .collect();
        notes.push(format!(
            "{} of {} stayed in memory, because other programs use them, too: {}.",
            bytes(pages.stayed),
            bytes(pages.wanted),
            files.join(", ")
        ));
    }
    if report.bypassed > 0 {
        notes.push(format!(
            "headstart did nothing for {} of {} starts: what they read was in memory.",
            report.bypassed,
            report.with_headstart.len()
        ));
    }
    notes.push(match &report.kept {
        Some(key) => format!("What was learned is kept: `headstart status {}`.", printable(key)),
        None => "Nothing that was learned is kept.".to_owned(),
    });
    notes
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const ROW: f64 = 44.0;

/// One page that loads nothing: the six lines, and every start as a dot.
pub fn html(report: &Report) -> String {
    let command = xml(&report.command.join(" "));
    let rows: String = lines(report)
        .iter()
        .map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n", xml(value)))
        .collect();
    let notes: String = notes(report)
        .iter()
        .map(|note| format!("<p>{}</p>\n", xml(note)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>headstart bench: {command}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>What headstart brings on this machine</h1>\n<p><code>{command}</code></p>\n<table>\n{rows}</table>\n\
         {}\n{notes}</body>\n</html>\n",
        dots(report)
    )
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em}\
    th{text-align:left;padding-right:1.5em;white-space:nowrap;vertical-align:top}\
    svg{max-width:100%;height:auto}text{font:13px system-ui,sans-serif;fill:currentColor}\
    .cold{fill:#c0392b}.with{fill:#2471a3}.warm{fill:#7d8b2f}line{stroke:currentColor;stroke-opacity:.3}";

/// Every start as a dot on one scale that begins at 0.
fn dots(report: &Report) -> String {
    let groups = [
        ("cold", "cold", &report.cold),
        ("with headstart", "with", &report.with_headstart),
        ("warm", "warm", &report.warm),
    ];
    let most = groups
        .iter()
        .flat_map(|(_, _, times)| times.iter().copied())
        .fold(1e-3, f64::max);
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - 20.0) * seconds / most;
    let mut drawn = String::new();
    for (index, (name, class, times)) in groups.iter().enumerate() {
        let y = ROW * (index as f64 + 0.5);
        drawn += &format!("<text x=\"0\" y=\"{:.0}\">{name}</text>", y + 4.0);
        drawn += &format!(
            "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y}\" y2=\"{y}\"/>",
            x(most)
        );
        for time in times.iter() {
            drawn += &format!(
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5\" fill-opacity=\".6\"><title>{}</title></circle>",
                x(*time),
                seconds(*time)
            );
        }
    }
    let bottom = ROW * groups.len() as f64;
    for (at, anchor) in [(0.0, "start"), (most, "end")] {
        drawn += &format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            bottom + 14.0,
            seconds(at)
        );
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Each start by how long it took\">{drawn}</svg>",
        bottom + 24.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_bench::report::Pages;
    use headstart_bench::rule::{difference, finding};
    use headstart_model::floor::{Above, Floor};

    fn report(cold: &[f64], with: &[f64]) -> Report {
        Report {
            command: ["python3", "-c", "import pandas # <&>"]
                .map(String::from)
                .to_vec(),
            end: End::Exit,
            cold: cold.to_vec(),
            with_headstart: with.to_vec(),
            warm: vec![1.0, 1.02, 1.01, 0.99],
            finding: finding(cold, with),
            saved: difference(cold, with),
            cold_by: ColdBy::Files,
            pages: Pages {
                wanted: 100 << 20,
                stayed: 10 << 20,
                files_that_stayed: vec!["/usr/lib/libc.so.6".into()],
            },
            floor: Some(Floor {
                floor_ns: 4_200_000_000,
                moment_ns: 1_000_000_000,
                read_ns: 3_900_000_000,
                read_all_ns: 4_000_000_000,
                warm_ns: 1_300_000_000,
                bytes: 96 << 20,
                waited: false,
            }),
            above: Some(Above {
                took_ns: 4_610_000_000,
                own_ns: 100_000_000,
                order_ns: 210_000_000,
                over_read_ns: 0,
                reads_left_ns: 0,
                computing_ns: 100_000_000,
            }),
            bypassed: 0,
            kept: None,
        }
    }

    const COLD: [f64; 5] = [8.9, 9.4, 8.7, 8.8, 9.0];
    const WITH: [f64; 5] = [4.6, 4.7, 4.5, 4.8, 4.61];

    #[test]
    fn six_lines_say_what_a_stranger_asks() {
        let text = text(&report(&COLD, &WITH));
        let lines: Vec<&str> = text.lines().collect();
        let names = [
            "cold",
            "with headstart",
            "warm",
            "saved",
            "at best",
            "what is left",
        ];
        for name in names {
            assert!(lines.iter().any(|line| line.starts_with(name)), "{name}: {text}");
        }
        assert!(
            text.contains("8.90 s (median of 5 starts, 8.70 s to 9.40 s)"),
            "{text}"
        );
        assert!(text.contains("48 % of a cold start"), "{text}");
        assert!(text.contains("most of it order (210 ms)"), "{text}");
        assert!(text.contains("10.0 MiB of 100 MiB stayed"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn what_gains_nothing_and_what_loses_is_said_as_plainly() {
        let same = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 1.01, 1.0];
        let no_difference = text(&report(&same, &same));
        assert!(no_difference.contains("no difference seen"), "{no_difference}");
        let slower = text(&report(&WITH, &COLD));
        assert!(slower.contains("nothing: it takes 4.29 s longer"), "{slower}");
        let few = text(&report(&COLD[..2], &WITH[..2]));
        assert!(few.contains("too few starts to tell"), "{few}");
    }

    #[test]
    fn boots_say_how_many_are_to_come() {
        let boots = |left, is_known, times: &[f64]| {
            boots_text(&Boots {
                since_unix_ns: 1,
                left,
                not_read_ahead: times.to_vec(),
                read_ahead: times.iter().map(|seconds| seconds / 5.0).collect(),
                finding: Finding::Faster,
                saved: difference(
                    times,
                    &times.iter().map(|seconds| seconds / 5.0).collect::<Vec<_>>(),
                ),
                is_known,
            })
        };
        let first = boots(10, false, &[]);
        assert!(
            first.contains("not measured") && first.contains("the next boot teaches"),
            "{first}"
        );
        let last = boots(0, true, &COLD);
        assert!(
            last.contains("80 % of a boot") && last.contains("all that were to be"),
            "{last}"
        );
    }

    #[test]
    fn the_page_is_well_formed_and_loads_nothing() {
        let page = html(&report(&COLD, &WITH));
        let svg = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap() + 6];
        let drawn = roxmltree::Document::parse(svg).unwrap();
        let dots = drawn.descendants().filter(|node| node.has_tag_name("circle"));
        assert_eq!(dots.count(), 14);
        assert!(page.contains("import pandas # &lt;&amp;&gt;"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
    }
}

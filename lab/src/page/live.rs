//! Boots of a live desktop by the memory of the machine (`lab/live`), beside what KNOPPIX published of its
//! list of files.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::bars::{STYLE, xml};
use super::rows::Rows;
use headstart_bench::statistics::median;

/// The columns of `lab/live`'s boots.csv.
pub const COLUMNS: &[&str] = &["medium", "memory_mb", "order", "way", "seconds"];
/// The columns of what was published.
pub const PUBLISHED: &[&str] = &["memory_mb", "plain_s", "readahead_s"];

/// Medians in seconds by medium, memory in MiB, order of files and way of reading ahead.
type Boots<'a> = BTreeMap<(&'a str, u32, &'a str, &'a str), (f64, usize)>;

fn boots(rows: &Rows) -> Result<Boots<'_>> {
    let mut times: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for row in rows.iter() {
        let memory = row.number("memory_mb")? as u32;
        let key = (row.text("medium"), memory, row.text("order"), row.text("way"));
        times.entry(key).or_default().push(row.number("seconds")?);
    }
    Ok(times
        .into_iter()
        .map(|(key, of)| (key, (median(&of), of.len())))
        .collect())
}

/// One row for each medium, memory and order.
pub fn table(rows: &Rows) -> Result<String> {
    let boots = boots(rows)?;
    let mut text = format!(
        "{}\n\n| medium, memory | order of files | n | none, s | list, s | headstart, s | list / none | headstart / none | goal |\n|---|---|---|---|---|---|---|---|---|\n",
        rows.about
    );
    for ((medium, memory, order, _), (none, n)) in boots.iter().filter(|((.., way), _)| *way == "none") {
        let of = |way| boots.get(&(*medium, *memory, *order, way)).map(|(time, _)| *time);
        let time = |way| of(way).map_or("–".to_owned(), |time| format!("{time:.1}"));
        let share = |way| of(way).map_or("–".to_owned(), |time| format!("{:.2}", time / none));
        let own = match of("headstart") {
            Some(time) if time > GOAL * none => format!("**{}**", share("headstart")),
            _ => share("headstart"),
        };
        let _ = writeln!(
            text,
            "| {medium}, {memory} MiB | {order} | {n} | {none:.1} | {} | {} | {} | {own} | ≤ {GOAL} |",
            time("list"),
            time("headstart"),
            share("list"),
        );
    }
    Ok(text)
}

/// The most that a boot may take of one without reading ahead.
const GOAL: f64 = 1.02;

/// A line of a panel: its class in the style sheet, its name, and points of memory and share.
type Line = (&'static str, String, Vec<(u32, f64)>);

const PANEL: f64 = 440.0;
const HEIGHT: f64 = 340.0;
const TOP: f64 = 100.0;
const BOTTOM: f64 = 300.0;
/// The lowest and the highest share of the scale.
const SHARES: [f64; 2] = [0.4, 1.4];

/// Time over that without reading ahead by memory, a panel for each medium, each with the published curve.
pub fn picture(rows: &Rows, published: &Rows) -> Result<String> {
    let boots = boots(rows)?;
    let mut curve = Vec::new();
    for row in published.iter() {
        let share = row.number("readahead_s")? / row.number("plain_s")?;
        curve.push((row.number("memory_mb")? as u32, share));
    }
    let mut memories: Vec<u32> = curve.iter().map(|(memory, _)| *memory).collect();
    memories.extend(boots.keys().map(|(_, memory, ..)| *memory));
    memories.sort_unstable();
    memories.dedup();
    let mut media: Vec<&str> = boots.keys().map(|(medium, ..)| *medium).collect();
    media.dedup();
    let width = PANEL * media.len().max(1) as f64 + 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEIGHT}\" viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\">\n\
         <style>{STYLE}path{{fill:none;stroke-width:2}}.l0{{stroke:#7d8590;stroke-dasharray:5 4}}.l1{{stroke:#e07b00}}.l2{{stroke:#0072b2}}.l3{{stroke:#009e73}}\
         .grid{{stroke:#7d8590;stroke-width:1;opacity:.4}}.small{{font-size:11px}}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"16\" y=\"22\">A live desktop's boot: time over that without reading ahead, by memory in MiB; below 1 is faster</text>\n"
    );
    for (number, medium) in media.iter().enumerate() {
        let lines = lines(&boots, medium, &curve);
        panel(&mut out, PANEL * number as f64, medium, &lines, &memories);
    }
    out += "</svg>\n";
    Ok(out)
}

fn lines(boots: &Boots<'_>, medium: &str, curve: &[(u32, f64)]) -> Vec<Line> {
    let of = |order: &str, way: &str| -> Vec<(u32, f64)> {
        let own = boots
            .iter()
            .filter(|((m, _, o, w), _)| (*m, *o, *w) == (medium, order, way));
        own.filter_map(|(key, (time, _))| {
            let (none, _) = boots.get(&(key.0, key.1, key.2, "none"))?;
            Some((key.1, time / none))
        })
        .collect()
    };
    vec![
        ("l0", "KNOPPIX 2005, published".to_owned(), curve.to_vec()),
        ("l1", "list".to_owned(), of("default", "list")),
        ("l2", "headstart".to_owned(), of("default", "headstart")),
        (
            "l3",
            "headstart, files in order".to_owned(),
            of("profile", "headstart"),
        ),
    ]
}

fn panel(out: &mut String, left: f64, medium: &str, lines: &[Line], memories: &[u32]) {
    let (from, to) = (left + 50.0, left + PANEL - 10.0);
    let x = |memory: u32| {
        let index = memories.iter().position(|other| *other == memory).unwrap_or(0);
        from + (to - from) * (index as f64 + 0.5) / memories.len() as f64
    };
    let y = |share: f64| {
        let [low, high] = SHARES;
        BOTTOM - (BOTTOM - TOP) * (share.clamp(low, high) - low) / (high - low)
    };
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{from}\" y=\"48\">{}</text>",
        xml(medium)
    );
    for mark in [0.4, 0.6, 0.8, 1.0, 1.2, 1.4] {
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{from} {:.0}H{to}\"/><text class=\"small name\" x=\"{}\" y=\"{:.0}\">{mark:.1}</text>",
            y(mark),
            from - 6.0,
            y(mark) + 4.0
        );
    }
    for memory in memories {
        let _ = writeln!(
            out,
            "<text class=\"small\" text-anchor=\"middle\" x=\"{:.0}\" y=\"{}\">{memory}</text>",
            x(*memory),
            BOTTOM + 18.0
        );
    }
    for (number, (class, name, points)) in lines.iter().filter(|(.., points)| !points.is_empty()).enumerate()
    {
        let place = |(memory, share): &(u32, f64)| format!("{:.1} {:.1}", x(*memory), y(*share));
        let places: Vec<String> = points.iter().map(place).collect();
        let (at, above) = (
            from + 190.0 * (number % 2) as f64,
            64.0 + 16.0 * (number / 2) as f64,
        );
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"M{}\"/><path class=\"{class}\" d=\"M{at} {above}h24\"/><text class=\"small\" x=\"{}\" y=\"{}\">{}</text>",
            places.join("L"),
            at + 30.0,
            above + 4.0,
            xml(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTS: &str = "# Measured with build x\nround,medium,memory_mb,order,way,seconds\n\
        1,cdrom24x,256,default,none,100\n2,cdrom24x,256,default,none,104\n3,cdrom24x,256,default,none,90\n\
        1,cdrom24x,256,default,headstart,103\n1,cdrom24x,256,default,list,120\n1,cdrom24x,512,default,none,80\n\
        1,cdrom24x,512,default,headstart,60\n1,usb2-stick,512,profile,none,40\n1,usb2-stick,512,profile,headstart,30\n";

    #[test]
    fn boots_are_held_against_those_of_the_same_medium_memory_and_order() {
        let rows = Rows::parse(BOOTS, COLUMNS).unwrap();
        let text = table(&rows).unwrap();
        let lines: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(
            lines,
            [
                "| cdrom24x, 256 MiB | default | 3 | 100.0 | 120.0 | 103.0 | 1.20 | **1.03** | ≤ 1.02 |",
                "| cdrom24x, 512 MiB | default | 1 | 80.0 | – | 60.0 | – | 0.75 | ≤ 1.02 |",
                "| usb2-stick, 512 MiB | profile | 1 | 40.0 | – | 30.0 | – | 0.75 | ≤ 1.02 |",
            ]
        );
    }

    #[test]
    fn each_medium_has_a_panel_with_the_published_curve() {
        let rows = Rows::parse(BOOTS, COLUMNS).unwrap();
        let published = Rows::parse(
            "# p\nmemory_mb,plain_s,readahead_s\n128,400,480\n512,200,150\n",
            PUBLISHED,
        );
        let text = picture(&rows, &published.unwrap()).unwrap();
        for (part, times) in [
            (">KNOPPIX 2005, published<", 2),
            (">headstart<", 1),
            (">headstart, files in order<", 1),
            (">128<", 2),
            (">usb2-stick<", 1),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}: {text}");
        }
    }
}

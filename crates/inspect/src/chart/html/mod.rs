//! A picture as one HTML page, which draws itself: its data, its style and its script are in it, and it may
//! load nothing.

mod columns;
mod data;

use crate::chart::MOST_BYTES;
use crate::chart::layout::Layout;
use crate::chart::picture::Picture;
use crate::chart::text::xml;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const SCRIPT: &str = include_str!("chart.js");
const STYLE: &str = concat!(include_str!("../style.css"), include_str!("html.css"));

/// The page.
pub fn page(picture: &Picture<'_>, layout: &Layout) -> String {
    let mut room = MOST_BYTES - SCRIPT.len() - STYLE.len() - 16_384;
    loop {
        let page = around(picture, &data::document(picture, layout, room));
        // Texts that are long or full of markup take more than their share.
        if page.len() <= MOST_BYTES || room < 4096 {
            return page;
        }
        room = room / 4 * 3;
    }
}

/// What a policy names a script or style by.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn around(picture: &Picture<'_>, data: &str) -> String {
    let titles: Vec<&str> = picture.runs.iter().map(|run| run.title.as_str()).collect();
    let title = xml(&titles.join(" and "));
    let lines: Vec<String> = (picture.runs.iter())
        .map(|run| {
            let lines = run.facts.iter().chain(&run.notes);
            let lines: Vec<&str> = lines.map(String::as_str).collect();
            format!("{}: {}.", run.title, lines.join("; "))
        })
        .collect();
    let said = xml(&lines.join(" "));
    let (script, style) = (hash(SCRIPT), hash(STYLE));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; \
         style-src {style}; script-src {script}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{TOOLS}\
         <canvas id=\"picture\" tabindex=\"0\" role=\"application\" aria-label=\"{title}\" aria-describedby=\"about\"></canvas>\n\
         <p id=\"about\" class=\"unseen\">{said}</p>\n\
         <div id=\"tip\" role=\"tooltip\" hidden></div>\n<div id=\"said\" class=\"unseen\" aria-live=\"polite\"></div>\n\
         <noscript><p>This picture is drawn by the script in this page. Without one, make an SVG: headstart chart -o FILE.svg.</p>\
         </noscript>\n<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

const TOOLS: &str = "<div id=\"tools\" role=\"toolbar\" aria-label=\"Picture\">\
    <label>Search <input id=\"search\" type=\"search\" placeholder=\"path or process\" spellcheck=\"false\" \
    autocomplete=\"off\"></label> <output id=\"found\" for=\"search\"></output>\
    <span class=\"gap\"></span><output id=\"shown\"></output>\
    <button data-do=\"in\" title=\"Zoom in (+)\">+</button><button data-do=\"out\" title=\"Zoom out (-)\">\u{2212}</button>\
    <button data-do=\"left\" title=\"Earlier (left)\">\u{2190}</button>\
    <button data-do=\"right\" title=\"Later (right)\">\u{2192}</button>\
    <button data-do=\"all\" title=\"All (0)\">all</button>\
    <button data-do=\"tall\" title=\"Files one by one (f)\">files</button></div>\n\
<p id=\"keys\">Wheel or + \u{2212} zoom, drag or \u{2190} \u{2192} move, 0 all, / search, n p next and previous match, f files one by \
    one. At the left the wheel moves the page.</p>\n";

//! A page as PNG, for the guide:
//! `cargo run -p headstart-inspect --example screenshot PAGE.html PICTURE.png [light|dark [KEYS [SEARCH]]]`
//! shows it in Chromium, presses keys one after another (`++n`), and searches.

#[path = "../tests/chart/chromium.rs"]
mod chromium;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [page, picture, rest @ ..] = &arguments[..] else {
        return Err("usage: screenshot PAGE.html PICTURE.png [light|dark [KEYS [SEARCH]]]".into());
    };
    let path = std::path::Path::new(page).canonicalize()?;
    let Some(mut browser) = chromium::browser(1200, 900) else {
        return Ok(());
    };
    browser.scheme(rest.first().map_or("light", String::as_str));
    browser.open(&path);
    if let Some(text) = rest.get(2) {
        browser.press(&["/"]);
        browser.call("Input.insertText", json!({"text": text}));
        browser.value("document.getElementById('picture').focus()");
    }
    for key in rest.get(1).map_or("", String::as_str).chars() {
        browser.press(&[&key.to_string()]);
    }
    let height = browser
        .value("document.documentElement.scrollHeight")
        .as_u64()
        .unwrap_or(900);
    let size = json!({"width": 1200, "height": height, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", size);
    browser.settled();
    std::fs::write(picture, STANDARD.decode(browser.screenshot(false))?)?;
    Ok(())
}

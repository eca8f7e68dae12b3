//! Chromium without a window, driven by its own protocol over two pipes: requests go to its descriptor 3,
//! answers and events come from 4, each a JSON document that ends with a NUL.

#![allow(dead_code, clippy::unwrap_used)]

use headstart_model::testing::needs;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than any step takes on a slow machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The names that Chromium goes by.
const NAMES: [&str; 2] = ["chromium", "chromium-browser"];

/// A running browser with one page; ended when dropped.
pub struct Browser {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Value>,
    session: String,
    last: u64,
    /// Errors of pages: exceptions, and what a policy forbade.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// Starts one; `None` if there is none and tests that lack something are to be left out.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn browser(width: u32, height: u32) -> Option<Browser> {
    let there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    let name = NAMES.into_iter().find(there);
    if !needs("chromium (Debian's package of that name)", name.is_some()) {
        return None;
    }
    Some(Browser::start(name?, width, height))
}

impl Browser {
    fn start(name: &str, width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // A shell moves the pipes to the descriptors that the protocol is spoken on.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1",
                "sh",
                name,
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                match output.read_until(0, &mut message) {
                    Ok(count) if count > 0 => message.pop(),
                    _ => return,
                };
                let Ok(value) = serde_json::from_slice(&message) else {
                    return;
                };
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            requests,
            answers,
            session: String::new(),
            last: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser.scheme("light");
        browser
    }

    /// Asks for something and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut request = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&request).unwrap();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap();
        let answer = self.wait(method, |message| message["id"] == json!(id));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Waits for a message; errors of the page that come meanwhile are kept.
    fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = (self.answers.recv_timeout(left))
                .unwrap_or_else(|e| panic!("{what}: chromium does not answer: {e}"));
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.complaints.push(message["params"].to_string()),
                // Advice on speed is none.
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    let text = &message["params"]["entry"]["text"];
                    self.complaints.push(text.to_string());
                }
                _ => {}
            }
            if is_it(&message) {
                return message;
            }
        }
    }

    /// Loads a file and waits until it has painted.
    pub fn open(&mut self, path: &Path) {
        self.call(
            "Page.navigate",
            json!({"url": format!("file://{}", path.display())}),
        );
        self.wait("loading", |message| message["method"] == "Page.loadEventFired");
        self.eventually("window.headstartChart && headstartChart.view.painted > 0");
    }

    /// What an expression comes to in the page; waits for what it promises.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn eventually(&mut self, expression: &str) {
        let until = Instant::now() + TIMEOUT;
        while self.value(&format!("!!({expression})")) != json!(true) {
            assert!(
                Instant::now() < until,
                "never: {expression}; {:?}",
                self.complaints
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses keys one after another, by what they are called in the page.
    pub fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let text = if key.chars().count() == 1 { *key } else { "" };
            for kind in ["keyDown", "keyUp"] {
                let text = if kind == "keyDown" { text } else { "" };
                self.call(
                    "Input.dispatchKeyEvent",
                    json!({"type": kind, "key": key, "text": text}),
                );
            }
        }
        self.settled();
    }

    /// A mouse event.
    pub fn mouse(&mut self, kind: &str, x: f64, y: f64, more: Value) {
        let mut event = json!({"type": kind, "x": x, "y": y, "button": "none"});
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", event);
        self.settled();
    }

    /// Waits until what was asked for is painted.
    pub fn settled(&mut self) {
        self.value(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
        );
    }

    /// The reader's colour scheme: light or dark.
    pub fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// The page as PNG, in base64; all of it, or what the window shows.
    pub fn screenshot(&mut self, all: bool) -> String {
        let asked = json!({"format": "png", "captureBeyondViewport": all});
        let answer = self.call("Page.captureScreenshot", asked);
        answer["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .requests
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

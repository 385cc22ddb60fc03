//! A headless Chromium, driven by its DevTools protocol over two pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Scratch, scratch};

/// The longest wait for an answer or an event of the browser.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running browser with one page.
pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    next: u64,
    /// Everything that happened since the last [`take_events`](Self::take_events).
    events: Vec<Value>,
    _profile: Scratch,
}

/// The window of a page.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Width in CSS pixels.
    pub width: u32,
    /// Height in CSS pixels.
    pub height: u32,
    /// Whether the reader prefers a dark scheme.
    pub is_dark: bool,
}

/// Returns the path of an installed Chromium, or reports on standard error that it is missing.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "headless_shell"];
    let found = std::env::split_paths(&path)
        .flat_map(|place| names.map(|name| place.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Bypasses the output capture of the test harness, so that the message is visible.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: Chromium is not installed");
    }
    found
}

impl Browser {
    /// Starts the browser with an empty page, if it is installed.
    ///
    /// # Panics
    /// An installed browser does not start.
    pub fn start() -> Option<Self> {
        let program = chromium()?;
        let profile = scratch("browser");
        // The browser reads commands from descriptor 3 and writes messages to descriptor 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-dev-shm-usage",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.directory().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell runs");
        let commands = process.stdin.take().expect("a pipe");
        let output = process.stdout.take().expect("a pipe");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut own = Self {
            process,
            commands,
            messages,
            session: String::new(),
            next: 1,
            events: Vec::new(),
            _profile: profile,
        };
        let target = own.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = own.call("Target.attachToTarget", attach);
        own.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            own.call(&format!("{domain}.enable"), json!({}));
        }
        Some(own)
    }

    /// Sends a command and returns its result.
    ///
    /// # Panics
    /// The browser reports an error, or does not answer in time.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Like [`Self::call`], but returns the browser's error, such as a page that is being replaced by another.
    fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.next;
        self.next += 1;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser reads commands");
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.receive(until).unwrap_or_else(|| panic!("no answer to {method}"));
            if message["id"] == json!(id) {
                return match message.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(message["result"].clone()),
                };
            }
            self.events.push(message);
        }
    }

    /// Returns the next message, or `None` at that time.
    fn receive(&mut self, until: Instant) -> Option<Value> {
        match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the browser ended"),
        }
    }

    /// Sets the size and the color scheme of the page.
    pub fn set_window(&mut self, window: Window) {
        let Window { width, height, is_dark } = window;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address and waits until it is loaded.
    ///
    /// # Panics
    /// It is not loaded in time.
    pub fn open(&mut self, address: &str) {
        let from = self.events.len();
        let opened = self.call("Page.navigate", json!({"url": address}));
        assert!(opened.get("errorText").is_none(), "{address}: {}", opened["errorText"]);
        let until = Instant::now() + PATIENCE;
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events[from..].iter().any(is_loaded) {
            let message = self.receive(until).unwrap_or_else(|| panic!("{address} is not loaded"));
            self.events.push(message);
        }
    }

    /// Evaluates an expression in the page, and waits for the value of a promise.
    ///
    /// # Panics
    /// The expression throws an exception.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let outcome = self.call("Runtime.evaluate", parameters);
        assert!(outcome.get("exceptionDetails").is_none(), "{expression}: {}", outcome["exceptionDetails"]);
        outcome["result"]["value"].clone()
    }

    /// Whether an expression is true in the page. It is not while the page is being replaced by another, or if it throws.
    pub fn holds(&mut self, expression: &str) -> bool {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        self.try_call("Runtime.evaluate", parameters).is_ok_and(|outcome| outcome["result"]["value"] == true)
    }

    /// Returns the events since the last call of this method.
    pub fn take_events(&mut self) -> Vec<Value> {
        // An answer follows everything that happened before.
        self.evaluate("0");
        std::mem::take(&mut self.events)
    }

    /// Stores a picture of the page, for people who look at the result of a test.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn save_picture(&mut self, file: &Path) {
        use base64::Engine as _;
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let data = picture["data"].as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(file, bytes).expect("a picture is written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its other processes when its pipe is closed by the kernel.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Chromium without a window, driven by its DevTools protocol: JSON that ends with a zero byte, over two pipes of the process.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::world::World;

/// Longest that the browser may take for one thing, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The browser reads from the file descriptor 3 and writes to 4.
const WITH_PIPES: &str = r#"exec chromium "$@" 3<&0 4>&1 0</dev/null 1>&2"#;

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    into: RefCell<ChildStdin>,
    from: Receiver<Value>,
    last: Cell<u64>,
    session: String,
    events: RefCell<Vec<Value>>,
}

impl Browser {
    /// Starts one with an empty page. It keeps what it knows in the case's folder.
    pub(crate) fn start(world: &World) -> Result<Self> {
        let home = world.path("chromium");
        fs::create_dir_all(&home)?;
        let mut process = Command::new("sh")
            .args(["-c", WITH_PIPES, "sh", "--headless", "--remote-debugging-pipe"])
            // The case is root, and has namespaces of its own.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-sync",
            ])
            .args(["--disable-component-update", "--hide-scrollbars", "--lang=en"])
            .arg(format!("--user-data-dir={}", home.display()))
            .env("HOME", &home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It complains of all that a desktop would have.
            .stderr(File::create(home.join("log"))?)
            .spawn()
            .context("cannot start chromium")?;
        let into = process.stdin.take().context("no pipe")?;
        let out = process.stdout.take().context("no pipe")?;
        let (send, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            while let Some(message) = next_message(&mut out) {
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            process,
            into: RefCell::new(into),
            from,
            last: Cell::new(0),
            session: String::new(),
            events: RefCell::new(Vec::new()),
        };
        browser.open_page()?;
        Ok(browser)
    }

    fn open_page(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", attach)?;
        self.session = text(&attached["sessionId"]).to_owned();
        for domain in ["Page", "Network", "Runtime", "Log", "Accessibility", "DOM"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        self.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}))?;
        self.window(1100, 800)
    }

    /// Calls a method and gives its result.
    pub(crate) fn call(&self, method: &str, parameters: Value) -> Result<Value> {
        let id = self.last.get() + 1;
        self.last.set(id);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.into.borrow_mut().write_all(&bytes)?;
        let is_answer = |message: &Value| message["id"] == json!(id);
        let answer = self
            .wait(is_answer)
            .with_context(|| format!("no answer to {method}"))?;
        ensure!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
        Ok(answer["result"].clone())
    }

    /// Reads what the browser says until this comes. The rest is kept as events.
    fn wait(&self, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok(message) if is_wanted(&message) => return Ok(message),
                Ok(message) => self.events.borrow_mut().push(message),
                Err(RecvTimeoutError::Timeout) => bail!("nothing within {PATIENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("chromium has ended"),
            }
        }
    }

    /// The events since this was last called: method and parameters of each.
    pub(crate) fn happened(&self) -> Result<Vec<(String, Value)>> {
        // All events before this answer were sent before it.
        self.call("Runtime.evaluate", json!({"expression": "0"}))?;
        let events = self.events.take().into_iter();
        Ok(events
            .map(|event| (text(&event["method"]).to_owned(), event["params"].clone()))
            .collect())
    }

    /// Goes to an address, and waits until the page is loaded.
    pub(crate) fn go(&self, address: &str) -> Result<()> {
        let told = self.call("Page.navigate", json!({"url": address}))?;
        ensure!(told.get("errorText").is_none(), "{address}: {told}");
        self.wait_for_load()
    }

    /// Waits until a page is loaded to which something that was done leads.
    pub(crate) fn wait_for_load(&self) -> Result<()> {
        let is_load = |event: &Value| event["method"] == "Page.loadEventFired";
        let position = self.events.borrow().iter().position(is_load);
        match position {
            Some(at) => drop(self.events.borrow_mut().remove(at)),
            None => drop(self.wait(is_load).context("no page was loaded")?),
        }
        Ok(())
    }

    /// The value of an expression, of a promise too.
    pub(crate) fn value(&self, expression: &str) -> Result<Value> {
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true,
        });
        let told = self.call("Runtime.evaluate", parameters)?;
        ensure!(
            told.get("exceptionDetails").is_none(),
            "{expression}: {}",
            told["exceptionDetails"]
        );
        Ok(told["result"]["value"].clone())
    }

    /// The value of an expression that is a text.
    pub(crate) fn said(&self, expression: &str) -> Result<String> {
        Ok(text(&self.value(expression)?).to_owned())
    }

    /// All that the page says, as people see it.
    pub(crate) fn text(&self) -> Result<String> {
        self.said("document.body.innerText")
    }

    /// Presses a key.
    pub(crate) fn press(&self, key: &str, code: u32) -> Result<()> {
        let mut down = json!({
            "type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code,
        });
        if key == "Enter" {
            down["type"] = json!("keyDown");
            down["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", down)?;
        let up = json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up).map(|_| ())
    }

    /// Types a text where the focus is.
    pub(crate) fn type_text(&self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).map(|_| ())
    }

    /// Presses and releases the mouse in the middle of an element.
    pub(crate) fn click(&self, selector: &str) -> Result<()> {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView(); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Whether the page's scripts run.
    pub(crate) fn scripts(&self, run: bool) -> Result<()> {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !run}))
            .map(|_| ())
    }

    /// The size of the window.
    pub(crate) fn window(&self, width: u32, height: u32) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .map(|_| ())
    }

    /// `light` or `dark`, as the user's system says.
    pub(crate) fn colours(&self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}))
            .map(|_| ())
    }

    /// Name and password for all requests, as a browser sends them after it was asked for them; none of them with an empty name.
    pub(crate) fn log_in(&self, name: &str, password: &str) -> Result<()> {
        let header = format!("btoa('{name}:{password}')");
        let headers = match name {
            "" => json!({}),
            _ => json!({"Authorization": format!("Basic {}", self.said(&header)?)}),
        };
        self.call("Network.setExtraHTTPHeaders", json!({"headers": headers}))
            .map(|_| ())
    }

    /// A picture of what is in the window, as a PNG file.
    pub(crate) fn picture(&self, file: &Path) -> Result<()> {
        let told = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let mut base64 = Command::new("base64")
            .arg("--decode")
            .stdin(Stdio::piped())
            .stdout(File::create(file)?)
            .spawn()?;
        let mut into = base64.stdin.take().context("no pipe")?;
        into.write_all(text(&told["data"]).as_bytes())?;
        drop(into);
        ensure!(base64.wait()?.success(), "base64 failed");
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A value as text; nothing if it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The next message; `None` at the end.
fn next_message(from: &mut BufReader<impl Read>) -> Option<Value> {
    let mut bytes = Vec::new();
    from.read_until(0, &mut bytes).ok()?;
    bytes.pop();
    serde_json::from_slice(&bytes).ok()
}

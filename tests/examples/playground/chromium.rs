//! A headless Chromium, driven over the pipe of its DevTools protocol.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::program::PATIENCE;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A page in a browser of its own, which ends when this is dropped.
pub(crate) struct Page {
    child: Child,
    to: ChildStdin,
    from: mpsc::Receiver<Value>,
    session: Value,
    asked: u64,
    /// What it writes, removed when it has ended.
    _profile: tempfile::TempDir,
}

impl Page {
    /// Opens one; none where there is no Chromium on the path.
    pub(crate) fn open(address: &str) -> Option<Self> {
        let there = |name: &&str| {
            let version = Command::new(name).arg("--version").output();
            version.is_ok_and(|version| version.status.success())
        };
        let name = NAMES.into_iter().find(there)?;
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new("sh")
            // It reads at 3 and writes at 4.
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh", name])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-first-run"])
            // It opens one page, of this machine.
            .args(["--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--disable-extensions", "--disable-sync"])
            .args(["--disable-component-update", "--disable-breakpad", "--no-pings"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, out) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (send, from) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON");
                // Who listens is gone when the page is.
                let _ = send.send(message);
            }
        });
        let _profile = profile;
        let mut page = Self { child, to, from, session: Value::Null, asked: 0, _profile };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        page.session = page.call("Target.attachToTarget", &attach)["sessionId"].clone();
        page.call("Page.enable", &json!({}));
        page.call("Page.navigate", &json!({ "url": address }));
        Some(page)
    }

    /// One command of the protocol, and what it gives.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let mut ask = json!({ "id": self.asked, "method": method, "params": params });
        if self.session.is_string() {
            ask["sessionId"] = self.session.clone();
        }
        self.to.write_all(&[ask.to_string().as_bytes(), b"\0"].concat()).expect("it reads");
        loop {
            let mut said = self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{method}: Chromium says nothing: {error}");
            });
            if said["id"] == self.asked {
                assert!(said["error"].is_null(), "{method}: {}", said["error"]);
                return said["result"].take();
            }
        }
    }

    /// What an expression of the page's language gives.
    pub(crate) fn get(&mut self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut given = self.call("Runtime.evaluate", &ask);
        assert!(given["exceptionDetails"].is_null(), "{expression}: {given}");
        given["result"]["value"].take()
    }

    /// Waits until an expression gives something that counts as true.
    pub(crate) fn until(&mut self, expression: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.get(expression);
            match &value {
                Value::Null | Value::Bool(false) => {}
                Value::String(text) if text.is_empty() => {}
                _ => return value,
            }
            if Instant::now() > end {
                let page = self.get("document.body.innerText");
                panic!("not in {PATIENCE:?}: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A window of this size, light or dark.
    pub(crate) fn resize(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": scheme });
        let calm = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [scheme, calm] }));
    }

    /// Presses a key, as at a keyboard.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// The whole page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let ask = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", &ask);
        from_base64(picture["data"].as_str().expect("a picture"))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Ended so it takes its own processes along.
        let bye = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.to.write_all(&[bye.to_string().as_bytes(), b"\0"].concat());
        let end = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for sign in text.bytes().filter(|&sign| sign != b'=') {
        let value = SIGNS.iter().position(|&known| known == sign).expect("base64");
        (held, bits) = ((held << 6 | value as u32) & 0xffff, bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

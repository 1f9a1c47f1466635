//! Pages as the browser has them.

use anyhow::{Result, ensure};

use crate::browser::{Browser, text};
use crate::registry::OwnRegistry;

/// Goes to a page of the registry; gives its text.
pub(super) fn page(registry: &OwnRegistry, browser: &Browser, path: &str) -> Result<String> {
    browser.go(&format!("http://{}{path}", registry.address))?;
    browser.text()
}

pub(super) fn expect(text: &str, parts: &[&str]) -> Result<()> {
    let absent: Vec<&&str> = parts.iter().filter(|part| !text.contains(**part)).collect();
    ensure!(absent.is_empty(), "no {absent:?} in: {text}");
    Ok(())
}

/// Checks the browser's actions since the last call: it asked nobody but this registry, opened no dialog and complained of nothing.
pub(super) fn ensure_quiet(registry: &OwnRegistry, browser: &Browser) -> Result<usize> {
    let own = format!("http://{}/", registry.address);
    let mut requests = 0;
    for (what, told) in browser.happened()? {
        match what.as_str() {
            "Network.requestWillBeSent" => {
                requests += 1;
                let address = text(&told["request"]["url"]);
                ensure!(address.starts_with(&own), "the page asks for {address}");
            }
            "Page.javascriptDialogOpening" | "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => {
                anyhow::bail!("{what}: {told}")
            }
            "Log.entryAdded" => ensure!(text(&told["entry"]["level"]) != "error", "{told}"),
            _ => {}
        }
    }
    Ok(requests)
}

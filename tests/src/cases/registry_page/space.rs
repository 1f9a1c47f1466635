//! The page of what is stored, in Chromium.

use anyhow::{Result, ensure};

use super::reading::{ensure_quiet, expect, page};
use super::stock::fill;
use crate::browser::Browser;
use crate::registry::OwnRegistry;
use crate::world::World;

/// An administrator is shown a picture of what is stored.
pub(super) fn space(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    ensure!(!page(registry, browser, "/")?.contains("Space"));
    browser.log_in("anna", "secret")?;
    page(registry, browser, "/")?;
    browser.click("nav a:last-child")?;
    browser.wait_for_load()?;
    let told = browser.text()?;
    expect(
        &told,
        &["Clients have pushed", "Stored as pushed", "Would be taken apart"],
    )?;
    let bars = "(() => { const of = name => { const e = document.querySelector(`.bars .${name}`), r = e.getBoundingClientRect(); \
        return [Math.round(r.width), r.height > 10, getComputedStyle(e).fill]; }; return [of('pushed'), of('intact')]; })()";
    let bars = browser.value(bars)?;
    // All of it is stored as it was pushed.
    ensure!(
        bars[0][0] == bars[1][0] && bars[0][0].as_u64() > Some(300),
        "{bars}"
    );
    ensure!(bars[0][1] == true && bars[0][2] != bars[1][2], "{bars}");
    ensure_quiet(registry, browser)?;
    Ok(bars.to_string())
}

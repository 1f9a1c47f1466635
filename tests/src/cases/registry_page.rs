//! The page for people, in Chromium: what it shows, to whom, by keyboard, to screen readers, and what it never does.
//!
//! With `E2E_SCREENSHOTS=DIRECTORY`, the case `registry_page/looks` leaves the pictures of `docs/registry.md` there.

mod reading;
mod space;
mod stock;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::reading::{ensure_quiet, expect, page};
use self::stock::{artifact, curl_head, fill, logins, put};
use super::registry::missing;
use crate::browser::{Browser, text};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// How long an image may take to be indexed, and a button to have done what it does.
const PATIENCE: Duration = Duration::from_secs(60);
/// Contrast that WCAG asks of text, level AA.
const CONTRAST: f64 = 4.5;
/// The least contrast of a text with what is behind it, and that text; and the page's background.
const LEAST_CONTRAST: &str = include_str!("registry_page/contrast.js");

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World, &OwnRegistry, &Browser) -> Result<String>| Case {
        name: format!("registry_page/{name}"),
        limit: LIMIT,
        run: Box::new(move |world| in_browser(world, &logins(world), run)),
    };
    vec![
        case("shows", shows),
        case("search", search),
        case("copies", copies),
        case("rights", rights),
        case("space", space::space),
        case("hostile", hostile),
        case("keyboard", keyboard),
        case("accessible", accessible),
        case("looks", looks),
    ]
}

/// A registry and a browser, if there are both.
fn in_browser(
    world: &World,
    configuration: &str,
    body: fn(&World, &OwnRegistry, &Browser) -> Result<String>,
) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "chromium"]) {
        return Ok(skipped);
    }
    OwnRegistry::add_user(&world.path("htpasswd"), "anna", "secret")?;
    let registry = OwnRegistry::start(world, "own", configuration)?;
    let browser = Browser::start(world)?;
    body(world, &registry, &browser).map(Outcome::Passed)
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Repositories, tags, platforms, layers, sizes, what refers to what and what is lazy; from this registry and from nowhere else.
fn shows(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    let digest = fill(world, registry)?;
    expect(
        &page(registry, browser, "/")?,
        &["Repositories", "open/app", "open/tools/builder", "UTC"],
    )?;
    until("open/app:1.0 is lazy", || {
        page(registry, browser, "/repositories/open/app")?;
        let start = browser.said("document.querySelector('#tags tbody tr td:last-child').innerText")?;
        Ok(start.starts_with("lazy"))
    })?;
    let tags = page(registry, browser, "/repositories/open/app")?;
    let command = format!("xebec run --rm {}/open/app:1.0", registry.address);
    expect(
        &tags,
        &["1.0", "linux/amd64", "linux/riscv64", "3.1 MB", &command],
    )?;
    // By the link of the first tag.
    browser.click("#tags tbody th a")?;
    browser.wait_for_load()?;
    let image = browser.text()?;
    let parts = [
        "linux/amd64",
        "Layers",
        "indexed",
        "tar+gzip",
        "Referred to by",
        "index of layers",
        "signature",
    ];
    expect(&image, &parts)?;
    expect(&image, &[&digest, "1.0"])?;
    let layers = browser.value("document.querySelectorAll('table')[0].tBodies[0].rows.length")?;
    ensure!(layers == 2, "{layers} layers");
    // A manifest that refers to it has a page, too.
    browser.value("[...document.querySelectorAll('tr')].find(row => row.innerText.includes('signature')).querySelector('a').click()")?;
    browser.wait_for_load()?;
    expect(&browser.text()?, &["oras pull", "cosign", "Refers to", &digest])?;
    page(registry, browser, "/repositories/open/app?search=all")?;
    browser.click("#tags tbody th a")?;
    browser.wait_for_load()?;
    expect(&browser.text()?, &["Images", "linux/riscv64", "xebec run"])?;
    browser.click("table a")?;
    browser.wait_for_load()?;
    expect(&browser.text()?, &["Layers", &digest])?;
    let requests = ensure_quiet(registry, browser)?;
    Ok(format!("{requests} requests, all to the registry"))
}

/// Search with scripts filters as one types; without them it asks the registry. Both find tags, too.
fn search(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    let shown = "[...document.querySelectorAll('tbody tr')].filter(r => r.offsetHeight).map(r => r.querySelector('th').innerText).join()";
    page(registry, browser, "/")?;
    browser.value("document.querySelector('#search').focus()")?;
    browser.type_text("BUILD")?;
    ensure!(
        browser.said(shown)? == "open/tools/builder",
        "{}",
        browser.said(shown)?
    );
    expect(&browser.text()?, &["1 of 2"])?;
    browser.scripts(false)?;
    for (path, wanted, found) in [
        ("/", "ToOls", "open/tools/builder"),
        ("/repositories/open/app", "ed", "edge"),
        ("/repositories/open/app", ".0", "1.0"),
    ] {
        page(registry, browser, path)?;
        ensure!(browser.value("document.querySelectorAll('.command button').length")? == 0);
        browser.value("document.querySelector('#search').focus()")?;
        browser.type_text(wanted)?;
        browser.happened()?;
        browser.press("Enter", 13)?;
        browser.wait_for_load()?;
        let rows = browser.said(shown)?;
        ensure!(rows == found, "{path} {wanted}: {rows}");
        let kept = browser.said("document.querySelector('#search').value")?;
        ensure!(kept == wanted, "{kept}");
    }
    page(registry, browser, "/?search=nothing-of-this-name")?;
    expect(&browser.text()?, &["nothing-of-this-name"])?;
    ensure_quiet(registry, browser)?;
    Ok("with scripts and without".to_owned())
}

/// The button copies the shell line; where the browser refuses, the line is selected.
fn copies(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    let origin = format!("http://{}", registry.address);
    let permissions =
        json!({"origin": origin, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]});
    browser.call("Browser.grantPermissions", permissions)?;
    page(registry, browser, "/repositories/open/app")?;
    browser.click(".command button")?;
    until("the button says so", || Ok(browser.text()?.contains("Copied")))?;
    let line = browser.said("navigator.clipboard.readText()")?;
    ensure!(
        line == format!("xebec run --rm {}/open/app:1.0", registry.address),
        "{line}"
    );
    // As it is without TLS at another name than localhost: there is no clipboard.
    browser.value("Object.defineProperty(navigator, 'clipboard', {value: undefined}); 0")?;
    browser.click(".command + .command button")?;
    until("what to do instead", || {
        Ok(browser.text()?.contains("Press Ctrl+C"))
    })?;
    let selected = browser.said("getSelection().toString().trim()")?;
    ensure!(selected.starts_with("docker pull"), "{selected:?}");
    ensure_quiet(registry, browser)?;
    Ok(line)
}

/// A visitor who has not logged in sees what everybody may see and nothing else, can log in, and then sees the rest.
fn rights(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    let all = page(registry, browser, "/")?;
    expect(&all, &["open/app", "Log in"])?;
    ensure!(!all.contains("secret"), "{all}");
    let index: Value = serde_json::from_slice(&fs::read(world.path("layout/index.json"))?)?;
    let closed = format!(
        "/repositories/team/secret@{}",
        text(&index["manifests"][0]["digest"])
    );
    let mut answers = Vec::new();
    for path in [
        "/repositories/team/secret",
        "/repositories/team/nothing",
        &closed,
        "/activity",
        "/space",
        "/login",
    ] {
        let answer = curl_head(registry, path, &[])?;
        // A browser knows no tokens.
        ensure!(
            answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Basic"),
            "{path}: {answer}"
        );
        let varies = |line: &&str| {
            ["x-request-id", "date", "content-length"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let same: Vec<&str> = answer.lines().filter(|line| !varies(line)).collect();
        answers.push(same.join("\n").replace("team/secret", "team/nothing"));
    }
    ensure!(
        answers[0] == answers[1],
        "whether it is there can be told: {answers:?}"
    );
    ensure!(page(registry, browser, "/?search=secret")?.contains("No repository that you may see"));
    browser.happened()?;
    browser.log_in("anna", "secret")?;
    expect(
        &page(registry, browser, "/login")?,
        &["team/secret", "Logged in as anna"],
    )?;
    expect(
        &page(registry, browser, "/repositories/team/secret")?,
        &["linux/amd64"],
    )?;
    page(registry, browser, "/activity")?;
    ensure_quiet(registry, browser)?;
    browser.log_in("anna", "wrong")?;
    let refused = curl_head(registry, "/", &["-u", "anna:wrong"])?;
    ensure!(
        refused.starts_with("HTTP/1.1 401") && refused.contains("Basic"),
        "{refused}"
    );
    // A request that a page of another site has a browser send with this login changes nothing.
    let begin = format!("http://{}/v2/open/app/blobs/uploads/", registry.address);
    let told = run(Command::new("curl").args([
        "-sS",
        "-u",
        "anna:secret",
        "-X",
        "POST",
        "-H",
        "Origin: http://evil.example",
        &begin,
    ]))?;
    expect(
        &String::from_utf8_lossy(&told.stdout),
        &["DENIED", "another site"],
    )?;
    Ok("closed repositories are as if they were not there".to_owned())
}

/// Markup in what others push stays text.
fn hostile(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    let (script, image) = ("<script>alert(1)</script>", "\"><img src=x onerror=alert(2)>");
    let mut evil = artifact(script, None);
    evil["annotations"] = json!({"org.opencontainers.image.title": image, script: image});
    evil["layers"][0]["mediaType"] = json!(image);
    evil["layers"][0]["annotations"] = json!({"org.opencontainers.image.title": script});
    put(registry, "open/app", "evil", &evil)?;
    let shown = page(registry, browser, "/repositories/open/app?search=evil")?;
    expect(&shown, &["evil"])?;
    browser.click("#tags tbody th a")?;
    browser.wait_for_load()?;
    expect(&browser.text()?, &[image])?;
    let encoded = "%22%3E%3Cimg%20src=x%20onerror=alert(3)%3E%3Cscript%3Ealert(4)%3C/script%3E";
    let found = page(registry, browser, &format!("/?search={encoded}"))?;
    expect(&found, &["<script>alert(4)</script>"])?;
    page(
        registry,
        browser,
        &format!("/repositories/open/app?search={encoded}"),
    )?;
    ensure_quiet(registry, browser)?;
    let foreign = "document.querySelectorAll('main img, main script, body > script').length";
    ensure!(browser.value(foreign)? == 0);
    // The policy holds if all else fails.
    page(registry, browser, "/")?;
    browser.value("document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:9/x.png\" onerror=\"window.ran = 1\">')")?;
    until("the policy refuses", || {
        let events = browser.happened()?;
        let is_refusal = |(_, told): &(String, Value)| told.to_string().contains("Content Security Policy");
        Ok(events.iter().any(is_refusal))
    })?;
    ensure!(
        browser.value("window.ran === undefined")? == true,
        "inline code ran"
    );
    Ok("markup in types, annotations and searches stays text".to_owned())
}

/// The Tab key leads to all that can be used, in order, and shows where it is.
fn keyboard(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    fill(world, registry)?;
    page(registry, browser, "/")?;
    let where_it_is = "(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect(); \
        const seen = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && r.width > 0 && r.x >= 0 && r.y >= 0; \
        return (e.innerText || e.id || e.getAttribute('aria-label') || e.tagName).split('\\n')[0] + (seen ? '' : ' (unseen)'); })()";
    let mut found = Vec::new();
    for _ in 0..9 {
        browser.press("Tab", 9)?;
        found.push(browser.said(where_it_is)?);
    }
    let wanted = [
        "To the content",
        "Repositories",
        "Activity",
        "Log in",
        "search",
        "Search",
        "Repositories that you may pull from",
        "open/app",
        "open/tools/builder",
    ];
    ensure!(found == wanted, "{found:?}");
    browser.press("Enter", 13)?;
    browser.wait_for_load()?;
    expect(&browser.text()?, &["Tags of open/tools/builder"])?;
    // The first link leads past what is on each page.
    browser.press("Tab", 9)?;
    browser.press("Enter", 13)?;
    browser.press("Tab", 9)?;
    let first = browser.said("document.activeElement.id")?;
    ensure!(first == "search", "{first}");
    ensure_quiet(registry, browser)?;
    Ok(found.join(", "))
}

/// All pages of an image, its repository, and the others.
fn all_pages(digest: &str) -> [(&'static str, String); 7] {
    [
        ("repositories", "/".to_owned()),
        ("tags", "/repositories/open/app".to_owned()),
        ("image", format!("/repositories/open/app@{digest}")),
        ("nothing-found", "/?search=nothing".to_owned()),
        ("activity", "/activity".to_owned()),
        ("space", "/space".to_owned()),
        ("missing", "/repositories/open/none".to_owned()),
    ]
}

/// The text for a screen reader: landmarks, headings, names of all that can be used, and headers of tables.
fn accessible(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    let digest = fill(world, registry)?;
    browser.log_in("anna", "secret")?;
    let mut nodes = 0;
    for (name, path) in all_pages(&digest) {
        page(registry, browser, &path)?;
        let tree = browser.call("Accessibility.getFullAXTree", json!({}))?;
        let told: Vec<(&str, &str)> = tree["nodes"]
            .as_array()
            .context("no tree")?
            .iter()
            .filter(|node| node["ignored"] != true)
            .map(|node| (text(&node["role"]["value"]), text(&node["name"]["value"])))
            .collect();
        nodes += told.len();
        let count = |role: &str| told.iter().filter(|(found, _)| *found == role).count();
        for landmark in ["banner", "main", "navigation"] {
            ensure!(
                count(landmark) == 1,
                "{name}: {} {landmark}: {told:?}",
                count(landmark)
            );
        }
        ensure!(count("heading") >= 1, "{name}: no heading");
        let tops = browser.value("document.querySelectorAll('h1').length")?;
        ensure!(tops == 1, "{name}: {tops} h1");
        ensure!(
            browser.said("document.documentElement.lang")? == "en"
                && !browser.said("document.title")?.is_empty()
        );
        for (role, label) in &told {
            let is_control =
                ["button", "link", "searchbox", "textbox", "region", "navigation"].contains(role);
            ensure!(
                !is_control || !label.trim().is_empty(),
                "{name}: a {role} without a name: {told:?}"
            );
        }
        let is_told = |(role, label): &(&str, &str)| role.starts_with("im") && label.contains("are stored");
        ensure!(
            name != "space" || told.iter().any(is_told),
            "the picture says nothing: {told:?}"
        );
        if ["repositories", "tags", "image", "space"].contains(&name) {
            ensure!(
                count("table") >= 1 && count("columnheader") >= 3 && count("rowheader") >= 1,
                "{name}: {told:?}"
            );
        }
        if ["repositories", "tags"].contains(&name) {
            ensure!(
                count("search") == 1 && count("searchbox") == 1,
                "{name}: {told:?}"
            );
        }
    }
    Ok(format!("{nodes} nodes of {} pages", all_pages(&digest).len()))
}

/// Light and dark, each with enough contrast, and nothing is wider than a small window. Pictures, if they are asked for.
fn looks(world: &World, registry: &OwnRegistry, browser: &Browser) -> Result<String> {
    let digest = fill(world, registry)?;
    until("both images are lazy", || {
        let mut lazy = true;
        for name in ["open/app", "open/tools/builder"] {
            page(registry, browser, &format!("/repositories/{name}"))?;
            lazy &= browser.value("document.querySelectorAll('.good').length > 0")? == true;
        }
        Ok(lazy)
    })?;
    browser.log_in("anna", "secret")?;
    let pictures = std::env::var_os("E2E_SCREENSHOTS").map(PathBuf::from);
    let mut least = f64::MAX;
    for (name, path) in all_pages(&digest) {
        let mut backgrounds = Vec::new();
        for scheme in ["light", "dark"] {
            browser.colours(scheme)?;
            browser.window(1100, 860)?;
            page(registry, browser, &path)?;
            let told = browser.value(LEAST_CONTRAST)?;
            let contrast = told["least"].as_f64().context("no contrast")?;
            ensure!(contrast >= CONTRAST, "{name}, {scheme}: {told}");
            least = least.min(contrast);
            backgrounds.push(told["background"].clone());
            if let Some(directory) = &pictures {
                take_picture(browser, directory, &format!("registry-page-{name}-{scheme}"))?;
            }
            browser.window(360, 640)?;
            let width = browser.value("document.documentElement.scrollWidth")?;
            ensure!(
                width.as_u64().is_some_and(|width| width <= 360),
                "{name}, {scheme}: {width} wide"
            );
        }
        if let Some(directory) = &pictures {
            take_picture(browser, directory, &format!("registry-page-{name}-narrow"))?;
        }
        ensure!(backgrounds[0] != backgrounds[1], "{name}: {backgrounds:?}");
    }
    Ok(format!(
        "contrast at least {least:.1}; no page is wider than 360 pixels"
    ))
}

fn take_picture(browser: &Browser, directory: &Path, name: &str) -> Result<()> {
    fs::create_dir_all(directory)?;
    browser.picture(&directory.join(format!("{name}.png")))
}

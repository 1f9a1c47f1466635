//! The picture of a recording.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_format::runtime_image::PageRun;

use super::support::{PAGE, Published, START, Service};
use crate::runner::Outcome;
use crate::world::World;

/// Reads a picture with another parser and tells of it: how many rectangles stand for pages, what is written where.
const PARSER: &str = r#"
import json, sys, xml.etree.ElementTree as tree
space = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == space + "svg", root.tag
groups = [group for group in root.iter(space + "g") if group.get("class", "").startswith("pages")]
rects = [rect for group in groups for rect in group.findall(space + "rect")]
assert all(float(rect.get(name)) >= 0 for rect in rects for name in ("x", "y", "width", "height"))
outside = [name for element in root.iter() for name in element.attrib if name.endswith("href")]
texts = ["".join(text.itertext()) for text in root.iter(space + "text")]
print(json.dumps({"rects": len(rects), "outside": outside, "texts": texts}))
"#;

/// Every run of pages is there, files are named, and nothing but the file itself is needed.
pub(super) fn picture(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let inspect = |words: &[&str]| lab.xebec("root", &[&["inspect", "--runtime-image"], words].concat());
    inspect(&["--svg", "/nowhere/x.svg", &names.tag])?.expect(3, &["xebec record"])?;
    let told = service.record("root", &["--repeat", "2", &names.tag])?;
    let published = Published::new(lab, "app", &told)?;
    service.record("root", &[&names.tag, "1s", START[0]])?;

    let file = lab.path("start.svg");
    let place = file.to_string_lossy();
    let command = [&["/bin/linger", "0s"][..], &START[..]].concat().join(" ");
    inspect(&["--svg", &place, "--service", &command, &names.tag])?.expect(0, &[&place])?;
    let drawn = parse(&place)?;
    let wanted = pieces(&service, &published)?;
    ensure!(
        drawn["rects"] == wanted,
        "{wanted} runs in files, drawn {drawn:#}"
    );
    ensure!(drawn["outside"] == Value::Array(Vec::new()), "{drawn:#}");
    let texts = drawn["texts"].to_string();
    for word in [
        &names.tag,
        &command,
        "/bin/linger · ",
        "/start/b · 256 of 256",
        "2 runs",
    ] {
        ensure!(texts.contains(word), "{word} is not in {texts}");
    }
    // The newest, on standard output, on another host.
    let out = lab.xebec("other", &["inspect", "--runtime-image", "--svg", "-", &names.tag])?;
    out.expect(0, &[])?;
    std::fs::write(&file, &out.out)?;
    let texts = parse(&place)?["texts"].to_string();
    ensure!(
        texts.contains("/start/a") && !texts.contains("/start/b"),
        "{texts}"
    );

    inspect(&["--svg", "-", "--service", "linger", &names.tag])?.expect(2, &["several", "1s"])?;
    inspect(&["--svg", "-", "--service", "httpd", &names.tag])?.expect(3, &["httpd", "linger"])?;
    lab.xebec("root", &["inspect", "--svg", "-", &names.tag])?
        .expect(2, &["--runtime-image"])?;
    inspect(&["--svg", "/nowhere/x.svg", "--service", "1s", &names.tag])?.expect(125, &["/nowhere/x.svg"])?;
    Ok(Outcome::Passed(format!("{wanted} rectangles")))
}

fn parse(path: &str) -> Result<Value> {
    let output = Command::new("python3").args(["-c", PARSER, path]).output()?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{problem}");
    serde_json::from_slice(&output.stdout).context("the parser's answer")
}

/// How many runs a service's pages are, where each ends with its file.
fn pieces(service: &Service<'_>, published: &Published) -> Result<u64> {
    // Pages of the upper layer at which files begin: its data space has them one after the other.
    let mut begins: BTreeMap<u64, ()> = BTreeMap::new();
    let mut page = 0;
    for (_, contents) in &service.files {
        begins.insert(page, ());
        page += contents.len().div_ceil(PAGE) as u64;
    }
    let recorded = published.recording.services.first().context("no service")?;
    let runs = recorded.touched.iter().map(|seen| seen.run);
    let pieces = runs.map(|run: PageRun| match run.layer {
        1 => 1 + begins.range(run.first + 1..run.end()).count() as u64,
        _ => 1,
    });
    Ok(pieces.sum())
}

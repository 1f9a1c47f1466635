//! Starts with a recording, which fetch the bytes that they need and nothing else.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::Options;
use xebec_testkit::tar::TarBuilder;

use super::support::{
    Published, START, STRAY, Service, expect_lazy, expect_recorded, image, lower_layer, number, strays,
};
use crate::runner::Outcome;
use crate::world::World;

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// A recorded service starts with one request for its pages, fetches no layer, and then with none.
pub(super) fn one_request(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let (zone, zeros) = (number(&told, "/zone_bytes")?, number(&told, "/zero_pages")?);
    ensure!(zeros >= 256, "zeros cost nothing: {told:#}");
    ensure!((1_100_000..4 << 20).contains(&zone), "{told:#}");

    let stats = service.start("root", &[&names.tag])?;
    expect_recorded(&stats)?;
    let missing = number(&stats, "/runtime_image/missing")?;
    ensure!(missing > 0 && missing == number(&told, "/pages")?, "{stats:#}");
    ensure!(number(&stats, "/runtime_image/injected")? >= missing, "{stats:#}");
    ensure!(number(&stats, "/runtime_image/requests")? == 1, "{stats:#}");
    let strays = number(&stats, "/fills/events")?;
    let bytes = number(&stats, "/network/bytes")? - number(&stats, "/fills/bytes_fetched")?;
    ensure!(bytes < 2 * zone, "{bytes} bytes for a zone of {zone}");

    let again = service.start("root", &[&names.tag])?;
    expect_recorded(&again)?;
    ensure!(number(&again, "/runtime_image/missing")? == 0, "{again:#}");
    ensure!(number(&again, "/runtime_image/requests")? == 0, "{again:#}");
    ensure!(number(&again, "/fills/events")? <= STRAY, "{again:#}");

    let lazy = service.start("lazy", &["--no-runtime-image", &names.tag])?;
    ensure!(lazy.get("runtime_image").is_none_or(Value::is_null), "{lazy:#}");
    expect_lazy(&lazy)?;
    ensure!(number(&lazy, "/fills/events")? > STRAY, "{lazy:#}");

    service.expect_truth("root", &names.tag)?;
    service.expect_sound("root", &names.tag)?;
    Ok(Outcome::Passed(format!(
        "{missing} pages by one request of {bytes} bytes (zone {zone}), {strays} others; lazily {} bytes and {} events",
        number(&lazy, "/network/bytes")?,
        number(&lazy, "/fills/events")?,
    )))
}

/// A host that knows nothing of the image asks four times: the configuration comes with the recording, and the indexes with the pages. So
/// does one that has one of its layers by another image. Pages that were not recorded are read all the same.
pub(super) fn four_requests(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;

    let stats = service.start("root", &[&names.tag])?;
    expect_recorded(&stats)?;
    let asked = service.asked();
    ensure!(asked.len() as u64 <= 4 + strays(&stats)?, "{asked:#?}");
    ensure!(number(&stats, "/runtime_image/requests")? == 1, "{stats:#}");
    service.expect_truth("root", &names.tag)?;
    service.expect_sound("root", &names.tag)?;

    let lower = lower_layer(&fs::read(World::go_tool("linger")?)?);
    let neighbour = ImageBuilder::new().layer(&lower, Compression::Gzip(1))?;
    let neighbour = lab.push_indexed(&neighbour.build(), "neighbour")?;
    lab.xebec("half", &["pull", &neighbour.tag])?.expect(0, &[])?;
    let half = service.start("half", &[&names.tag])?;
    expect_recorded(&half)?;
    let half_asked = service.asked();
    // And one by which the repository shows that it has what is here from the neighbour.
    ensure!(half_asked.len() as u64 <= 5 + strays(&half)?, "{half_asked:#?}");
    let bytes = |stats: &Value| number(stats, "/network/bytes");
    ensure!(bytes(&half)? < bytes(&stats)?, "{half:#}");

    // A repository that has nothing beside the image but the recording.
    let alone = lab.push(&service.image, "alone");
    Published::new(lab, "app", &told)?.attach(lab, "app", &alone, Vec::new())?;
    let stats = service.start("alone", &["--require-lazy", &alone.tag])?;
    expect_recorded(&stats)?;
    service.expect_truth("alone", &alone.tag)?;
    Ok(Outcome::Passed(format!("{asked:?}")))
}

/// Where the registry has no referrers API it is asked five times, and four times from then on: that is remembered, over
/// restarts. Another host of the same registry learns it by itself.
pub(super) fn five_requests(world: &World) -> Result<Outcome> {
    let options = Options {
        referrers_api: false,
        ..Options::default()
    };
    let service = Service::with(world, options)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let other = lab.push(&service.image, "other");
    Published::new(lab, "app", &told)?.attach(lab, "app", &other, Vec::new())?;
    // It would prove what it has, and ask for the layers when others are counted.
    lab.stop("recorder")?;
    let mut said = Vec::new();
    for root in ["root", "elsewhere"] {
        let stats = service.start(root, &["--require-lazy", &names.tag])?;
        expect_recorded(&stats)?;
        let first = service.asked();
        ensure!(first.len() as u64 <= 5 + strays(&stats)?, "{first:#?}");
        let in_vain = |asked: &[String]| asked.iter().filter(|path| path.contains("/referrers/")).count();
        ensure!(in_vain(&first) == 1, "{first:#?}");
        lab.stop(root)?;
        lab.xebec(root, &["rmi", &names.tag])?.expect(0, &[])?;
        let stats = service.start(root, &["--require-lazy", &names.tag])?;
        expect_recorded(&stats)?;
        let second = service.asked();
        ensure!(
            second.len() as u64 <= 4 + strays(&stats)?,
            "{second:#?} {stats:#}"
        );
        ensure!(in_vain(&second) == 0, "{second:#?}");
        lab.stop(root)?;
        said = first;
    }
    Ok(Outcome::Passed(format!("{said:?}, and then without the second")))
}

/// A recording says who the image's user is by its lists, and a host keeps that, for containers that are begun before there are
/// lists. One that is wrong is put right by the start.
pub(super) fn user(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let mut lists = TarBuilder::new();
    lists.directory("etc");
    lists.file("etc/passwd", b"app:x:1000:100::/home/app:/bin/sh\n");
    lists.file("etc/group", b"staff:x:50:app\n");
    let image = image(&fs::read(World::go_tool("linger")?)?, &service.files)?;
    let image = image.layer(&lists.into_bytes(), Compression::Gzip(1))?;
    let image = image.config("User", json!("app")).build();
    let names = lab.push_indexed(&image, "app")?;
    let right = json!({"uid": 1000, "gid": 100, "additional": [50], "home": "/home/app"});
    service.record("recorder", &[&names.tag])?;

    // Before it has run anything there.
    let mnt = lab.mount("root", &names.tag, &[])?;
    lab.umount("root", &mnt)?;
    let record = |root: &str| -> Result<(PathBuf, Value)> {
        let digest = image.manifest.digest.hex();
        let path = lab.path(root).join(format!("images/{digest}.json"));
        let record = serde_json::from_slice(&fs::read(&path)?)?;
        Ok((path, record))
    };
    let (path, mut wrong) = record("root")?;
    ensure!(
        wrong.get("user").is_none(),
        "who only looks asks for no recording: {wrong:#}"
    );
    service.start("elsewhere", &[&names.tag])?;
    let (_, kept) = record("elsewhere")?;
    ensure!(kept["user"] == right, "by the recording: {kept:#}");

    wrong["user"] = json!({"uid": 0, "gid": 0, "additional": [], "home": "/root"});
    fs::write(&path, wrong.to_string())?;
    for _ in 0..2 {
        expect_recorded(&service.start("root", &[&names.tag])?)?;
        let (_, kept) = record("root")?;
        ensure!(kept["user"] == right, "by the start: {kept:#}");
    }
    Ok(Outcome::Passed(right.to_string()))
}

/// An artifact that has another configuration than the image, or none, is no reason to believe it: the registry is asked.
pub(super) fn config_elsewhere(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let published = Published::new(lab, "app", &told)?;
    let listed = published.manifest.pointer("/layers").and_then(Value::as_array);
    let listed = listed.context("no blobs")?;
    let is_config = |entry: &Value| entry.get("mediaType").and_then(Value::as_str) == Some(CONFIG_TYPE);
    let place = listed.iter().position(is_config).context("no configuration")?;
    // With the image's digest, so that nothing tells but the bytes themselves.
    let wrong = listed.first().and_then(|recording| recording.get("data"));
    let wrong = wrong.context("no other contents")?;
    for (repository, data) in [("lie", Some(wrong)), ("none", None)] {
        let names = lab.push(&service.image, repository);
        let mut changed = Published::new(lab, "app", &told)?;
        let entry = changed.manifest.pointer_mut(&format!("/layers/{place}"));
        let entry = entry.and_then(Value::as_object_mut).context("no entry")?;
        entry.remove("data").context("no data")?;
        if let Some(data) = data {
            entry.insert("data".to_owned(), data.clone());
        }
        changed.attach(lab, "app", &names, Vec::new())?;
        let stats = service.start(repository, &["--require-lazy", &names.tag])?;
        expect_recorded(&stats)?;
        let asked = service.asked();
        ensure!(asked.len() as u64 <= 5 + strays(&stats)?, "{asked:#?}");
    }
    Ok(Outcome::Passed("the registry is asked for it".to_owned()))
}

/// A recording is of one command line, and of the variables that it was told to heed.
pub(super) fn services(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let is_used = |root: &str, words: &[&str]| -> Result<bool> {
        let stats = service.start(root, words)?;
        let used = stats.get("runtime_image").is_some_and(|loaded| !loaded.is_null());
        match used {
            true => expect_recorded(&stats)?,
            false => expect_lazy(&stats)?,
        }
        Ok(used)
    };
    let one = [&names.tag[..], "0s", START[0]];
    let other = [&names.tag[..], "0s", START[1]];
    service.record("recorder", &one)?;
    ensure!(is_used("same", &one)?, "not used for what was recorded");
    ensure!(!is_used("other", &other)?, "used for another service");
    ensure!(
        !is_used("own", &[&names.tag])?,
        "used for the image's own command"
    );

    let with = |value: &'static str| [&["--env", value][..], &other[..]].concat();
    service.record(
        "recorder",
        &[&["--key-env", "MODE"][..], &with("MODE=blue")].concat(),
    )?;
    ensure!(is_used("blue", &with("MODE=blue"))?, "not used with its variable");
    ensure!(!is_used("red", &with("MODE=red"))?, "used with another value");
    ensure!(!is_used("none", &other)?, "used without the variable");
    let unset = lab.xebec(
        "recorder",
        &[&["record", "--key-env", "MODE"][..], &other].concat(),
    )?;
    ensure!(unset.code != 0, "a variable that is not set: {unset:?}");
    unset.expect(unset.code, &["MODE", "--env"])?;
    Ok(Outcome::Passed(
        "told apart by arguments and by a variable".to_owned(),
    ))
}

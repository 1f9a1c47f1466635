//! `xebec cache` and `xebec rmi`.

use xebec_images::images::Images;
use xebec_images::inventory::survey;
use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_kernel::clock::seconds_since_1970;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_protocol::wire::{CacheReport, Collected, Forgotten, ImageRequest, Reply, Request};

use crate::args::{CacheCommand, GcArgs, ImageArgs, Json, RmiArgs};
use crate::failures::Failures;
use crate::{caller, text};

/// `xebec cache`.
pub(crate) fn command(paths: &Paths, command: &CacheCommand) -> Result<(), Failure> {
    match command {
        CacheCommand::Stat(args) => stat(paths, *args),
        CacheCommand::Gc(args) => collect(paths, args),
        CacheCommand::Pin(image) => pin(paths, image, true),
        CacheCommand::Unpin(image) => pin(paths, image, false),
    }
}

fn stat(paths: &Paths, args: Json) -> Result<(), Failure> {
    let report = report(paths)?;
    if args.json {
        return text::print_json(&report);
    }
    let heads = [
        "LAYER",
        "INDEX",
        "DATA SPACE",
        "PRESENT",
        "ON DISK",
        "PROVEN",
        "USED",
        "STAYS",
    ];
    let mut rows = vec![text::row(heads)];
    let now = seconds_since_1970();
    for layer in &report.layers {
        let pinned = layer.pinned_by.as_ref().map(|image| format!("pinned: {image}"));
        let used = layer.in_use_by.as_ref().map(|user| format!("in use: {user}"));
        rows.push(vec![
            layer.layer.short(),
            layer.index.short(),
            text::size(layer.pages * 4096),
            text::share(layer.present_pages, layer.pages),
            text::size(layer.disk_bytes),
            if layer.proven { "yes" } else { "no" }.to_owned(),
            text::ago(now.saturating_sub(layer.last_used)),
            used.or(pinned).unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    out!("{}", text::table(&rows));
    outln!(
        "{}, {} on disk in {}, {} of it can be evicted; {}",
        text::layers(report.layers.len() as u64),
        text::size(report.used_bytes),
        paths.root().display(),
        text::size(report.evictable_bytes),
        match report.limit {
            Some(limit) => format!("the limit is {}", text::size(limit)),
            None => "no limit is set (cache_size in daemon.toml)".to_owned(),
        }
    );
    Ok(())
}

/// From the daemon if there is one; else nothing is in use, and the files tell the rest.
fn report(paths: &Paths) -> Result<CacheReport, Failure> {
    let daemon = Daemon::new(paths.clone());
    match daemon.ask_running(&Request::Cache)? {
        Some(Reply::Cache(report)) => return Ok(*report),
        Some(_) => return Err(unexpected_reply()),
        None => (),
    }
    let limit = Settings::load(&paths.settings(), &Overrides::new())?.cache_size;
    Ok(survey(&Images::open(paths)?, limit.map(|size| size.0), |_| None))
}

fn collect(paths: &Paths, args: &GcArgs) -> Result<(), Failure> {
    let request = Request::Collect {
        target: args.to,
        dry_run: args.dry_run,
    };
    let Reply::Collected(collected) = Daemon::new(paths.clone()).ask(&request, &mut |_| ())? else {
        return Err(unexpected_reply());
    };
    if args.json {
        return text::print_json(&collected);
    }
    print_collected(&collected);
    Ok(())
}

fn print_collected(collected: &Collected) {
    let mut rows = vec![text::row(["LAYER", "FREED", "WHAT"])];
    for layer in &collected.layers {
        let what = match (&layer.kept, layer.punched_pages) {
            (Some(reason), _) => format!("stays: {reason}"),
            (None, Some(pages)) => format!("{pages} pages; its index stays"),
            (None, None) => "all of it".to_owned(),
        };
        rows.push(vec![layer.layer.short(), text::size(layer.bytes), what]);
    }
    if rows.len() > 1 {
        out!("{}", text::table(&rows));
    }
    let freed = collected.used_before.saturating_sub(collected.used_after) + collected.leftover_bytes;
    let (verb, now) = match collected.dry_run {
        true => ("would be freed", "would be left"),
        false => ("freed", "left"),
    };
    outln!(
        "{} {verb}, {} {now}",
        text::size(freed),
        text::size(collected.used_after)
    );
    if collected.limit.is_none() {
        outln!(
            "no limit is set (cache_size in daemon.toml), so only leftovers are removed; `xebec cache gc --to SIZE` evicts \
             down to a size"
        );
    }
    if collected.missing_bytes > 0 {
        outln!(
            "{} more are above the limit: layers in use or pinned, and what Xebec notes of images",
            text::size(collected.missing_bytes)
        );
    }
}

fn pin(paths: &Paths, image: &ImageArgs, pinned: bool) -> Result<(), Failure> {
    let request = Request::Pin {
        image: caller::image_request(image),
        pinned,
    };
    Daemon::new(paths.clone()).ask(&request, &mut |_| ()).map(|_| ())
}

/// `xebec rmi IMAGE...`.
pub(crate) fn remove(paths: &Paths, args: &RmiArgs) -> Result<(), Failure> {
    let (images, daemon) = (Images::open(paths)?, Daemon::new(paths.clone()));
    let (mut all, mut failures) = (Vec::new(), Failures::default());
    let mut forget = |reference: &str| {
        let (image, force) = (ImageRequest::named(reference), args.force);
        match daemon.ask(&Request::Forget { image, force }, &mut |_| ())? {
            Reply::Forgotten(forgotten) => Ok(*forgotten),
            _ => Err(unexpected_reply()),
        }
    };
    for name in &args.images {
        match images.forget_committed(name, args.force, &mut forget) {
            Ok(forgotten) if args.json => all.push(forgotten),
            Ok(forgotten) => print_forgotten(&forgotten),
            Err(failure) => failures.add(failure),
        }
    }
    if args.json {
        text::print_json(&all)?;
    }
    failures.end()
}

fn print_forgotten(forgotten: &Forgotten) {
    if !forgotten.left.is_empty() {
        outln!(
            "{}: removed the name; the image is still {}",
            forgotten.reference,
            forgotten.left.join(", ")
        );
        return;
    }
    let layers = text::layers(forgotten.removed_layers);
    outln!(
        "{}: removed, with {layers}; {} freed",
        forgotten.reference,
        text::size(forgotten.removed_bytes)
    );
    for reason in &forgotten.kept {
        outln!("  {reason}");
    }
}

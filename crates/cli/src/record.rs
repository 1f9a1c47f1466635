//! `xebec record`: runs a service under a recorder and shares the recording; or merges recordings.

mod list;

use std::sync::Arc;

use rustix::fs::{Access, access};
use xebec_images::images::Report;
use xebec_keeper::client::Daemon;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Reply, Unit};
use xebec_recordings::merge::{MergeOptions, Merged, merge};
use xebec_recordings::publish::{PublishOptions, Published};
use xebec_recordings::record::{RecordOptions, record as run_recorded};
use xebec_recordings::recordings::Recordings;

use crate::args::RecordArgs;
use crate::progress::Progress;
use crate::{caller, runtime, text};
pub(crate) use list::{recorded, trust};

/// `xebec record IMAGE [CMD…]`.
pub(crate) fn record(paths: &Paths, args: &RecordArgs) -> Result<(), Failure> {
    if args.list || args.remove || args.merge {
        expect_no_command(args)?;
    }
    if args.list {
        return list::list(paths, args);
    }
    if args.remove {
        return list::remove(paths, args);
    }
    if args.merge {
        return merge_recordings(paths, args);
    }
    // The service may run for minutes before the key is needed. It is not read here: the container runtime sees this process's memory.
    if let Some(key) = &args.sign
        && let Err(error) = access(key, Access::READ_OK)
    {
        return Err(Failure::host(format!("read the key {}", key.display()), error));
    }
    let daemon = Daemon::new(paths.clone());
    let options = RecordOptions {
        run: args.container.options(&args.service.image, &args.service.command),
        repeat: args.repeat,
        settle: args.settle,
    };
    let publish = PublishOptions {
        local: args.local,
        sign: args.sign.clone(),
        key_env: args.key_env.clone(),
    };
    let progress = Arc::new(Progress::of(format!("record {}", args.service.image.image)));
    let image = caller::image_request(&args.service.image);
    let session = run_recorded(&daemon, paths, &image, &options, &until_it_runs(&progress))?;
    // The runtime needs nothing more from this process, which is about to read logins and keys.
    if let Err(error) = xebec_kernel::process::keep_memory_to_itself() {
        tracing::warn!("cannot protect memory from other processes: {error}");
    }
    let recordings = Recordings::open(paths)?;
    let what = format!("share the recording of {}", args.service.image.image);
    let published = runtime::with_progress(what, async |report| {
        recordings
            .publish_recording(&image, &session, &options, &publish, report)
            .await
    })?;
    if args.json {
        return text::print_json(&published);
    }
    print_published(&published);
    Ok(())
}

/// All words after the image are its command, options too.
fn expect_no_command(args: &RecordArgs) -> Result<(), Failure> {
    let Some(word) = args.service.command.first() else {
        return Ok(());
    };
    let message = format!(
        "--list, --rm and --merge run nothing: leave out what follows the image, from \"{word}\" on, or put options before the image"
    );
    Err(Failure::new(FailureKind::Usage, message))
}

/// The report until the service runs. From then on the terminal belongs to the service's output.
fn until_it_runs(progress: &Arc<Progress>) -> Report {
    let (progress, report) = (progress.clone(), progress.report());
    Arc::new(move |reply| match reply {
        Reply::Progress {
            unit: Unit::Items,
            total: Some(1..),
            ..
        } => progress.end(),
        reply => report(reply),
    })
}

fn print_published(published: &Published) {
    let bytes = published.stored_bytes + published.recording_bytes;
    outln!(
        "{}: the service read {} pages ({}); the runtime image has {}, {} of the image",
        published.argv.join(" "),
        published.pages,
        text::size(published.pages * xebec_format::PAGE_SIZE),
        text::size(bytes),
        text::share(bytes, published.image_bytes),
    );
    if published.reused_pages > 0 {
        outln!(
            "segments of earlier recordings are used again: they hold {} pages, also such that this service does not read; {} are new",
            published.reused_pages,
            text::size(published.zone_bytes),
        );
    }
    match published.artifact {
        Some(artifact) => outln!("pushed {artifact}, which refers to {}", published.manifest),
        None => outln!("kept on this host only"),
    }
}

/// `xebec record --merge IMAGE`.
fn merge_recordings(paths: &Paths, args: &RecordArgs) -> Result<(), Failure> {
    let daemon = Daemon::new(paths.clone());
    let options = MergeOptions {
        local: args.local,
        sign: args.sign.clone(),
        limit: args.limit,
    };
    let recordings = Recordings::open(paths)?;
    let runtime = runtime::start()?;
    let progress = Arc::new(Progress::of(format!(
        "merge recordings of {}",
        args.service.image.image
    )));
    let report = progress.report();
    let image = caller::image_request(&args.service.image);
    let merged = merge(&daemon, &recordings, runtime.handle(), &image, &options, &report)?;
    progress.end();
    if args.json {
        return text::print_json(&merged);
    }
    print_merged(&merged);
    Ok(())
}

fn print_merged(merged: &Merged) {
    let bytes = merged.stored_bytes + merged.recording_bytes;
    outln!(
        "{} and {} merged: {} pages ({}), {} in the runtime image, {} of the image",
        text::count(merged.recordings.len() as u64, "recording"),
        text::count(merged.profiles, "profile"),
        merged.pages,
        text::size(merged.pages * xebec_format::PAGE_SIZE),
        text::size(bytes),
        text::share(bytes, merged.image_bytes),
    );
    let heads = [
        "SERVICE",
        "PAGES",
        "ADDED",
        "OVER THE LIMIT",
        "DROPPED",
        "RECORDINGS",
        "PROFILES",
    ];
    let mut rows = vec![text::row(heads)];
    for service in &merged.services {
        let env = service.env.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = env.chain(service.argv.iter().cloned()).collect();
        let numbers = [
            service.pages,
            service.added,
            service.left_out,
            service.dropped,
            service.recordings,
            service.profiles,
        ];
        let numbers = numbers.iter().map(ToString::to_string);
        rows.push(std::iter::once(words.join(" ")).chain(numbers).collect());
    }
    out!("{}", text::table(&rows));
    match merged.artifact {
        Some(artifact) => outln!("pushed {artifact}, which refers to {}", merged.manifest),
        None => outln!("kept on this host only"),
    }
}

//! `xebec commit` and `xebec push`.

use std::io;
use std::sync::atomic::Ordering;

use xebec_commit::Compression;
use xebec_container::HeldLayer;
use xebec_images::commit::{CommitOptions, Watch};
use xebec_images::images::Images;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{CommitArgs, PushArgs};
use crate::container_lookup::{directories, not_found};
use crate::{caller, runtime, text};

/// `xebec commit CONTAINER IMAGE`.
pub(crate) fn commit(paths: &Paths, args: &CommitArgs) -> Result<(), Failure> {
    let compression = Compression::named(&args.compression, args.level);
    let directories = directories(paths);
    let container = xebec_container::find(&directories, &args.container).map_err(not_found)?;
    let base = container.image().parse::<Reference>().ok();
    let options = CommitOptions {
        name: args.image.clone(),
        author: args.author.clone(),
        message: args.message.clone(),
        changes: args.changes.clone(),
        compression: compression.map_err(|problem| Failure::new(FailureKind::Usage, problem))?,
        pause: !args.no_pause,
        docker_config: base.and_then(|base| caller::login_of(base.repository())),
    };
    let is_told = HeldLayer::watch_signals().map_err(|error| Failure::host("watch for signals", error))?;
    let mut go_on = || match is_told.load(Ordering::Relaxed) {
        true => Err(io::Error::other("a signal asked for it; nothing was kept")),
        false => Ok(()),
    };
    // A container can have millions of such files.
    let (mut left_out, mut more) = (Vec::new(), 0_u64);
    let images = Images::open(paths)?;
    let made = runtime::with_progress(format!("commit {}", args.container), async |report| {
        let watch = Watch {
            go_on: &mut go_on,
            note: &mut |note| match left_out.len() < 1000 {
                true => left_out.push(note),
                false => more += 1,
            },
        };
        images
            .commit(&directories, &container, &options, watch, report)
            .await
    });
    left_out.iter().for_each(|note| errln!("xebec: {note}"));
    if more > 0 {
        errln!("xebec: left out {more} more files, which are not named");
    }
    let image = made?;
    if args.json {
        return text::print_json(&image);
    }
    outln!("{}", image.manifest);
    Ok(())
}

/// `xebec push IMAGE [TARGET]`.
pub(crate) fn push(paths: &Paths, args: &PushArgs) -> Result<(), Failure> {
    let images = Images::open(paths)?;
    let pushed = runtime::with_progress(format!("push {}", args.image), async |report| {
        let target = args.target.as_deref();
        images.push(&args.image, target, &caller::login_of, report).await
    })?;
    if args.json {
        return text::print_json(&pushed);
    }
    for layer in &pushed.layers {
        outln!("{}  {}  {}", layer.layer.short(), text::size(layer.size), layer);
    }
    outln!("{}: {}", pushed.reference, pushed.manifest);
    Ok(())
}

//! `xebec record`: runs a service under a recorder and shares what it touched.

use std::sync::Arc;

use xebec_host::client::Daemon;
use xebec_host::failure::Failure;
use xebec_host::image::Images;
use xebec_host::paths::Paths;
use xebec_host::runtime_image::publish::{PublishOptions, Published};
use xebec_host::runtime_image::record::{RecordOptions, record as run_recorded};

use crate::args::RecordArgs;
use crate::progress::Progress;
use crate::{image_request, print_json, text};

/// `xebec record IMAGE [CMD…]`.
pub(crate) fn record(paths: &Paths, args: &RecordArgs) -> Result<(), Failure> {
    let daemon = Daemon::new(paths.clone());
    let options = RecordOptions {
        run: args.container.options(&args.image, &args.command),
        repeat: args.repeat,
        settle: args.settle,
    };
    let publish = PublishOptions {
        local: args.local,
        sign: args.sign.clone(),
        key_env: args.key_env.clone(),
    };
    let progress = Arc::new(Progress::new());
    let image = image_request(&args.image);
    let session = run_recorded(&daemon, paths, &image, &options, &progress.report())?;
    let images = Images::open(paths)?;
    let published = crate::runtime()?.block_on(images.publish_recording(
        &image,
        &session,
        &options,
        &publish,
        &progress.report(),
    ))?;
    if args.json {
        return print_json(&published);
    }
    print_published(&published);
    Ok(())
}

fn print_published(published: &Published) {
    let bytes = published.stored_bytes + published.recording_bytes;
    println!(
        "{}: {} pages touched ({}), {} in the runtime image, {} of the image",
        published.argv.join(" "),
        published.pages,
        text::size(published.pages * xebec_host::PAGE_SIZE),
        text::size(bytes),
        text::share(bytes, published.image_bytes),
    );
    if published.reused_pages > 0 {
        println!(
            "{} of its pages are in earlier recordings of the image; {} are new",
            published.reused_pages,
            text::size(published.zone_bytes),
        );
    }
    match published.artifact {
        Some(artifact) => println!("pushed {artifact}, which refers to {}", published.manifest),
        None => println!("kept on this host only"),
    }
}

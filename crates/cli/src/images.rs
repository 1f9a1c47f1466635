//! `xebec mount`, `umount`, `index`, `pull` and `check`.

use std::path::{Path, PathBuf};

use xebec_images::check::{CheckedLayer, check_image};
use xebec_images::images::Images;
use xebec_images::publish::{PublishOptions, Published};
use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Allowed, Completion, Holder, ImageRequest, Purpose, Reply, Request};

use crate::args::{CheckArgs, IndexArgs, MountArgs, PullArgs};
use crate::progress::Progress;
use crate::{caller, runtime, text};

/// `xebec mount IMAGE DIR`.
pub(crate) fn mount(paths: &Paths, args: &MountArgs) -> Result<(), Failure> {
    let directory = mount_point(&args.dir)?;
    let progress = Progress::of(format!("mount {}", args.image.image));
    let request = Request::Mount {
        image: ImageRequest {
            pull: args.pull.into(),
            ..caller::image_request(&args.image)
        },
        holder: Holder::Directory {
            path: directory.clone(),
        },
        require_lazy: args.require_lazy,
        completion: args.complete.map(|deadline| Completion {
            deadline_seconds: deadline.as_secs(),
        }),
        purpose: Purpose::Files,
        allowed: Allowed {
            suid: args.suid,
            dev: args.dev,
        },
        wants_configuration: false,
    };
    let reply = Daemon::new(paths.clone()).ask(&request, &mut |reply| progress.show(reply))?;
    progress.end();
    match reply {
        Reply::Mounted(mounted) if args.json => text::print_json(&mounted),
        Reply::Mounted(mounted) => {
            let already = if mounted.already { " already" } else { "" };
            outln!(
                "{} is mounted on {}{already}",
                mounted.reference,
                directory.display()
            );
            Ok(())
        }
        _ => Err(unexpected_reply()),
    }
}

/// `xebec umount DIR`.
pub(crate) fn umount(paths: &Paths, directory: &Path) -> Result<(), Failure> {
    let holder = Holder::Directory {
        path: absolute(directory, "`xebec daemon status` lists what is mounted")?,
    };
    Daemon::new(paths.clone())
        .ask(&Request::Release { view: None, holder }, &mut |_| ())
        .map(|_| ())
}

/// `xebec pull IMAGE`.
pub(crate) fn pull(paths: &Paths, args: &PullArgs) -> Result<(), Failure> {
    let progress = Progress::of(format!("pull {}", args.image.image));
    let request = Request::Pull {
        image: caller::image_request(&args.image),
        complete: args.complete,
    };
    let reply = Daemon::new(paths.clone()).ask(&request, &mut |reply| progress.show(reply))?;
    progress.end();
    match reply {
        Reply::Pulled { manifest, bytes } if args.json => {
            text::print_json(&serde_json::json!({ "manifest": manifest, "bytes": bytes }))
        }
        Reply::Pulled { manifest, bytes } => {
            outln!("{}: {manifest}, {} fetched", args.image.image, text::size(bytes));
            Ok(())
        }
        _ => Err(unexpected_reply()),
    }
}

/// `xebec index IMAGE`.
pub(crate) fn index(paths: &Paths, args: &IndexArgs) -> Result<(), Failure> {
    let images = Images::open(paths)?;
    let options = PublishOptions {
        push: args.push,
        bind: args.bind,
        sign: args.sign.clone(),
    };
    let request = caller::image_request(&args.image);
    let published = runtime::with_progress(format!("index {}", args.image.image), async |report| {
        images.publish(&request, &options, report).await
    })?;
    if args.json {
        return text::print_json(&published);
    }
    print_published(&published);
    Ok(())
}

fn print_published(published: &Published) {
    let mut rows = vec![text::row(["LAYER", "SIZE", "INDEX", "SECTIONS", ""])];
    for layer in &published.layers {
        let index = match layer.index {
            Some(_) => text::size(layer.index_size),
            None => "not needed: has its own table of contents".to_owned(),
        };
        let note = layer
            .not_lazy
            .as_ref()
            .map(|reason| format!("NOT LAZY: {reason}"))
            .unwrap_or_default();
        let sections = text::size(layer.sections_size);
        rows.push(vec![
            layer.layer.short(),
            text::size(layer.size),
            index,
            sections,
            note,
        ]);
    }
    out!("{}", text::table(&rows));
    match (published.artifact, published.bound) {
        (Some(artifact), Some(bound)) => {
            outln!("pushed {artifact}, bound by the image index {bound}");
        }
        (Some(artifact), None) => outln!("pushed {artifact}, which refers to {}", published.manifest),
        (None, _) => outln!("kept on this host; --push shares it with all hosts"),
    }
}

/// `xebec check IMAGE`.
pub(crate) fn check(paths: &Paths, args: &CheckArgs) -> Result<(), Failure> {
    let progress = Progress::of(format!("check {}", args.image.image));
    let daemon = Daemon::new(paths.clone());
    let image = caller::image_request(&args.image);
    if args.all {
        let request = Request::Pull {
            image: image.clone(),
            complete: true,
        };
        daemon.ask(&request, &mut |reply| progress.show(reply))?;
    }
    if args.prove {
        return prove(&daemon, args, image, &progress);
    }
    let images = Images::open(paths)?;
    let layers = check_image(&images, &image)?;
    progress.end();
    if args.json {
        text::print_json(&layers)?
    } else {
        print_checked(&args.image.image, &layers)
    }
    let wrong: u64 = layers.iter().map(|layer| layer.wrong_spans).sum();
    if wrong > 0 {
        let verb = if wrong == 1 { "is" } else { "are" };
        let spans = text::count(wrong, "span");
        let message =
            format!("{spans} in the cache {verb} not what the index says; remove the layers named above");
        return Err(Failure::new(FailureKind::Integrity, message));
    }
    Ok(())
}

fn prove(daemon: &Daemon, args: &CheckArgs, image: ImageRequest, progress: &Progress) -> Result<(), Failure> {
    let reply = daemon.ask(&Request::Prove { image }, &mut |reply| progress.show(reply))?;
    progress.end();
    let Reply::Proved { layers } = reply else {
        return Err(unexpected_reply());
    };
    if args.json {
        text::print_json(&layers)?;
    } else {
        for layer in &layers {
            let result = layer.problem.as_deref().unwrap_or("proven");
            outln!("{}  {result}", layer.layer.short());
        }
    }
    let failed = layers.iter().filter(|layer| layer.problem.is_some()).count();
    if failed > 0 {
        let verb = if failed == 1 { "is" } else { "are" };
        let message = format!(
            "{failed} of {} {verb} not proven",
            text::layers(layers.len() as u64)
        );
        return Err(Failure::new(FailureKind::Integrity, message));
    }
    Ok(())
}

fn print_checked(image: &str, layers: &[CheckedLayer]) {
    let mut rows = vec![text::row(["LAYER", "VERIFIED", "PRESENT", "WRONG"])];
    for layer in layers {
        let verified = match layer.cached {
            true => format!("{} of {} spans", layer.verified_spans, layer.spans),
            false => "nothing is here".to_owned(),
        };
        let present = text::share(layer.present_pages, layer.pages);
        rows.push(vec![
            layer.layer.short(),
            verified,
            present,
            layer.wrong_spans.to_string(),
        ]);
    }
    out!("{}", text::table(&rows));
    if layers.iter().any(|layer| !layer.cached) {
        outln!(
            "the layers of which nothing is here come with the next `xebec run`; `xebec check --all {image}` fetches and \
             verifies all of them now"
        );
    }
}

/// The directory that an image is to be mounted on.
fn mount_point(path: &Path) -> Result<PathBuf, Failure> {
    let directory = absolute(path, "make it first, or name another")?;
    if !directory.is_dir() {
        let message = format!("{} is a file: an image is mounted on a directory", path.display());
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(directory)
}

/// The whole path of a directory; `advice` is the remedy if it is not there.
fn absolute(path: &Path, advice: &str) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| {
        let path = path.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(
                FailureKind::NotFound,
                format!("there is no directory {path}; {advice}"),
            ),
            _ => Failure::new(FailureKind::Usage, format!("{path}: {error}")),
        }
    })
}

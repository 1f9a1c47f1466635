//! `xebec record --list` and `--rm`: which recordings there are, and without which one starts from now on.

use xebec_kernel::clock::seconds_since_1970;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_recordings::inventory::{KeptImage, RemovedRecording};
use xebec_recordings::recordings::Recordings;
use xebec_recordings::summary::RecordedService;

use crate::args::RecordArgs;
use crate::footnotes::Footnotes;
use crate::{caller, runtime, text};

/// `xebec record --list [IMAGE]`.
pub(super) fn list(paths: &Paths, args: &RecordArgs) -> Result<(), Failure> {
    let has_image = !args.service.image.image.is_empty();
    let recordings = Recordings::open(paths)?;
    let images = match has_image {
        false => recordings.kept_images()?,
        true => {
            let what = format!("list recordings of {}", args.service.image.image);
            let request = caller::image_request(&args.service.image);
            let found = runtime::with_progress(what, async |report| {
                recordings.runtime_images(&request, report).await
            })?;
            vec![KeptImage {
                references: vec![found.reference],
                manifest: found.manifest,
                services: found.services,
            }]
        }
    };
    if args.json {
        return text::print_json(&images);
    }
    let services = images.iter().map(|image| image.services.len());
    match (services.sum::<usize>(), has_image) {
        (0, false) => outln!("this host keeps no recordings; `xebec record IMAGE` makes one"),
        (0, true) => outln!(
            "{}: no service is recorded; run `xebec record`",
            args.service.image.image
        ),
        _ => print(&images),
    }
    Ok(())
}

fn print(images: &[KeptImage]) {
    let heads = [
        "IMAGE",
        "SERVICE",
        "PAGES",
        "RECORDED",
        "TRUST",
        "WHERE",
        "RECORDING",
    ];
    let mut rows = vec![text::row(heads)];
    let mut notes = Footnotes::default();
    let now = seconds_since_1970();
    for image in images {
        let name = match image.references.is_empty() {
            true => image.manifest.short(),
            false => image.references.join(", "),
        };
        for service in &image.services {
            rows.push(vec![
                name.clone(),
                service.words(),
                service.pages.to_string(),
                recorded(service, now),
                trust(service, &mut notes),
                place(service).to_owned(),
                service.recording.short(),
            ]);
        }
    }
    out!("{}", text::table(&rows));
    notes.lines().iter().for_each(|line| outln!("{line}"));
}

/// A recording's root of trust, in a word.
pub(crate) fn trust(service: &RecordedService, notes: &mut Footnotes) -> String {
    // An image that has no name here any more has none.
    let word = service.trust.as_deref().unwrap_or("-");
    match service.refused.as_deref() {
        Some(reason) => format!("{word}{}", notes.mark(Some(reason))),
        None => word.to_owned(),
    }
}

/// How long ago a service was recorded, or that it was not.
pub(crate) fn recorded(service: &RecordedService, now: u64) -> String {
    match service.predicted {
        true => "predicted".to_owned(),
        false => text::ago(now.saturating_sub(service.recorded)),
    }
}

fn place(service: &RecordedService) -> &'static str {
    match (service.kept, service.in_registry) {
        (true, true) => "here, registry",
        (true, false) => "here",
        (false, _) => "registry",
    }
}

/// `xebec record --rm DIGEST|IMAGE`.
pub(super) fn remove(paths: &Paths, args: &RecordArgs) -> Result<(), Failure> {
    let removed = Recordings::open(paths)?.remove(&args.service.image.image)?;
    if args.json {
        return text::print_json(&removed);
    }
    for recording in &removed {
        outln!("removed {} from this host", recording.recording);
    }
    for hint in hints(&removed) {
        outln!("{hint}");
    }
    Ok(())
}

/// How those go that are in a registry. The OCI distribution specification lets a registry refuse to delete, and many do.
fn hints(removed: &[RemovedRecording]) -> Vec<String> {
    let pushed = removed
        .iter()
        .filter_map(|recording| Some((recording.repository.as_ref()?, recording.recording)));
    let commands: Vec<String> = pushed
        .map(|(repository, digest)| format!("  oras manifest delete {repository}@{digest}"))
        .collect();
    match commands.is_empty() {
        true => Vec::new(),
        false => {
            let text = "still in the registry, from where the next start fetches it again; to delete it there, where the \
                        registry allows it:";
            std::iter::once(text.to_owned()).chain(commands).collect()
        }
    }
}

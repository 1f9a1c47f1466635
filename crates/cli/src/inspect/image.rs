//! `xebec inspect` of images, and of the recordings of one.

use std::path::Path;

use xebec_images::images::{Images, Report};
use xebec_images::inventory::{ImageInfo, inspect_image};
use xebec_images::lazy::is_small;
use xebec_kernel::clock::seconds_since_1970;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;
use xebec_recordings::recordings::Recordings;

use crate::args::{ImageArgs, InspectArgs};
use crate::footnotes::Footnotes;
use crate::record::{recorded, trust};
use crate::{caller, runtime, text};

/// The facts about an image that this host has, and those that its registry tells.
pub(super) fn find(images: &Images, image: &ImageArgs) -> Result<ImageInfo, Failure> {
    with_progress(image, async |request, report| {
        inspect_image(images, request, report).await
    })
}

/// The recorded services of an image, or a picture of one.
pub(super) fn runtime_images(recordings: &Recordings, args: &InspectArgs) -> Result<(), Failure> {
    let [name] = args.names.as_slice() else {
        let message = "--runtime-image shows the services of one image";
        return Err(Failure::new(FailureKind::Usage, message));
    };
    let image = args.image(name);
    match &args.svg {
        Some(file) => draw_runtime_image(recordings, &image, args.service.as_deref(), file),
        None => list_runtime_images(recordings, &image, args.json),
    }
}

/// Prints an image for people.
pub(super) fn print(image: &ImageInfo) {
    outln!("{}", image.reference);
    outln!("manifest   {}", image.manifest);
    if let Some(index) = image.image_index {
        outln!("by index   {index}");
    }
    outln!("platform   {}", image.platform);
    outln!(
        "size       {} in {}",
        text::size(image.size),
        text::layers(image.layers.len() as u64)
    );
    outln!("lazy       {}", laziness(image));
    let heads = ["LAYER", "SIZE", "CODEC", "LAZY BY", "TRUST", "SPANS", "CACHED"];
    let mut rows = vec![text::row(heads)];
    let mut notes = Footnotes::default();
    for layer in &image.layers {
        let mut marked = notes.mark(layer.why_not.as_deref());
        let (lazy_by, trust) = match layer.trust.as_str() {
            "refused" => (layer.lazy_by.clone(), layer.trust.clone() + &marked),
            _ => (
                layer.lazy_by.clone() + &std::mem::take(&mut marked),
                layer.trust.clone(),
            ),
        };
        rows.push(vec![
            layer.layer.short(),
            text::size(layer.size),
            layer.codec.clone(),
            lazy_by,
            trust,
            layer
                .spans
                .map_or_else(|| "-".to_owned(), |spans| spans.to_string()),
            text::share(layer.present_pages, layer.pages),
        ]);
    }
    out!("{}", text::table(&rows));
    notes.lines().iter().for_each(|line| outln!("{line}"));
}

/// Refuses a name that only the default registry could know: as a rule it is a mistyped name of a container.
pub(super) fn refuse_unknown(images: &Images, name: &str) -> Result<(), Failure> {
    if Reference::names_registry(name) || images.records().named(name)?.is_some() {
        return Ok(());
    }
    let mut message = format!(
        "no container has the name or id {name:?}, and this host knows no image of that name; `xebec ps -a` and `xebec images` list \
         those that there are"
    );
    if let Ok(reference) = name.parse::<Reference>() {
        message.push_str(&format!(
            "; to ask a registry, name it: xebec inspect {reference}"
        ));
    }
    Err(Failure::new(FailureKind::NotFound, message))
}

/// Whether an image is lazy, but for layers that are too small to matter.
fn laziness(image: &ImageInfo) -> String {
    let not_lazy: Vec<u64> = image
        .layers
        .iter()
        .filter(|layer| !layer.lazy)
        .map(|layer| layer.size)
        .collect();
    let bytes = text::size(not_lazy.iter().sum());
    match not_lazy.len() {
        0 => "yes".to_owned(),
        1 if not_lazy.iter().all(|size| is_small(*size)) => {
            format!("yes, but for 1 small layer ({bytes}) that is read whole")
        }
        count if not_lazy.iter().all(|size| is_small(*size)) => {
            format!("yes, but for {count} small layers ({bytes}) that are read whole")
        }
        count => format!(
            "no: {count} of {} layers ({bytes}) are read whole",
            image.layers.len()
        ),
    }
}

/// Finds something out about an image, and shows that it goes on.
fn with_progress<T>(
    image: &ImageArgs,
    work: impl AsyncFnOnce(&ImageRequest, &Report) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let request = caller::image_request(image);
    runtime::with_progress(format!("inspect {}", image.image), async |report| {
        work(&request, report).await
    })
}

fn draw_runtime_image(
    recordings: &Recordings,
    image: &ImageArgs,
    service: Option<&str>,
    file: &Path,
) -> Result<(), Failure> {
    let chart = with_progress(image, async |request, report| {
        recordings.chart(request, service, report).await
    })?;
    let picture = xebec_picture::draw(&chart);
    if file.as_os_str() == "-" {
        out!("{picture}");
        return Ok(());
    }
    crate::caller::write(file, picture)
        .map_err(|error| Failure::host(format!("write {}", file.display()), error))?;
    outln!("{}: {}", file.display(), chart.service.argv.join(" "));
    Ok(())
}

fn list_runtime_images(recordings: &Recordings, image: &ImageArgs, json: bool) -> Result<(), Failure> {
    let found = with_progress(image, async |request, report| {
        recordings.runtime_images(request, report).await
    })?;
    if json {
        return text::print_json(&found);
    }
    if found.services.is_empty() {
        outln!("{}: no service is recorded; run `xebec record`", found.reference);
        return Ok(());
    }
    let heads = [
        "SERVICE",
        "PROBE",
        "PAGES",
        "EACH RUN",
        "FETCHED",
        "SHARE",
        "TRUST",
        "RECORDED",
        "RECORDING",
    ];
    let mut rows = vec![text::row(heads)];
    let now = seconds_since_1970();
    let mut notes = Footnotes::default();
    for service in &found.services {
        rows.push(vec![
            service.words(),
            service.probe.clone(),
            service.pages.to_string(),
            text::share(service.steady_pages, service.pages),
            text::size(service.stored_bytes),
            text::share(service.stored_bytes, found.image_bytes),
            trust(service, &mut notes),
            recorded(service, now),
            service.recording.short(),
        ]);
    }
    out!("{}", text::table(&rows));
    notes.lines().iter().for_each(|line| outln!("{line}"));
    Ok(())
}

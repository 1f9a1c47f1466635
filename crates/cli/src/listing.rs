//! `xebec inspect` and `images`.

use std::path::Path;

use xebec_images::images::{Images, Report};
use xebec_images::inventory::{ImageInfo, inspect_image};
use xebec_images::known_images::known_images;
use xebec_images::lazy::is_small;
use xebec_kernel::clock::seconds_since_1970;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::ImageRequest;
use xebec_recordings::recordings::Recordings;

use crate::args::{ImageJson, InspectArgs, Json};
use crate::footnotes::Footnotes;
use crate::record::trust;
use crate::{caller, runtime, text};

/// `xebec inspect IMAGE`.
pub(crate) fn inspect(paths: &Paths, args: &InspectArgs) -> Result<(), Failure> {
    if crate::containers::inspect(paths, args)? {
        return Ok(());
    }
    let recordings = Recordings::open(paths)?;
    if args.may_be_a_container() {
        refuse_unknown(recordings.images(), &args.image.image.image)?;
    }
    if let Some(file) = &args.svg {
        return draw_runtime_image(&recordings, args, file);
    }
    if args.runtime_image {
        return inspect_runtime_images(&recordings, &args.image);
    }
    let args = &args.image;
    let image = with_progress(args, async |request, report| {
        inspect_image(recordings.images(), request, report).await
    })?;
    if args.json {
        return text::print_json(&image);
    }
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
    outln!("lazy       {}", laziness(&image));
    let heads = ["LAYER", "SIZE", "CODEC", "LAZY BY", "TRUST", "SPANS", "CACHED"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
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
    Ok(())
}

/// Refuses a name that only the default registry could know: as a rule it is a mistyped name of a container.
fn refuse_unknown(images: &Images, name: &str) -> Result<(), Failure> {
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
    args: &ImageJson,
    work: impl AsyncFnOnce(&ImageRequest, &Report) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let request = caller::image_request(&args.image);
    runtime::with_progress(format!("inspect {}", args.image.image), async |report| {
        work(&request, report).await
    })
}

fn draw_runtime_image(recordings: &Recordings, args: &InspectArgs, file: &Path) -> Result<(), Failure> {
    let chart = with_progress(&args.image, async |request, report| {
        recordings.chart(request, args.service.as_deref(), report).await
    })?;
    let picture = crate::svg::draw(&chart);
    if file.as_os_str() == "-" {
        out!("{picture}");
        return Ok(());
    }
    crate::caller::write(file, picture)
        .map_err(|error| Failure::host(format!("write {}", file.display()), error))?;
    outln!("{}: {}", file.display(), chart.service.argv.join(" "));
    Ok(())
}

fn inspect_runtime_images(recordings: &Recordings, args: &ImageJson) -> Result<(), Failure> {
    let found = with_progress(args, async |request, report| {
        recordings.runtime_images(request, report).await
    })?;
    if args.json {
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
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
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
            text::ago(now.saturating_sub(service.recorded)),
            service.recording.short(),
        ]);
    }
    out!("{}", text::table(&rows));
    notes.lines().iter().for_each(|line| outln!("{line}"));
    Ok(())
}

/// `xebec images`.
pub(crate) fn images(paths: &Paths, args: Json) -> Result<(), Failure> {
    let images = known_images(&Images::open(paths)?)?;
    if args.json {
        return text::print_json(&images);
    }
    let heads = ["IMAGE", "MANIFEST", "LAYERS", "SIZE", "CACHED", "USED"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let now = seconds_since_1970();
    for image in images {
        let names: Vec<_> = image.references.iter().map(String::as_str).collect();
        rows.push(vec![
            if names.is_empty() {
                "(none)".to_owned()
            } else {
                names.join(", ")
            },
            image.manifest_digest.short(),
            image.layers.len().to_string(),
            text::size(image.size),
            text::share(image.cached_size, image.size),
            text::ago(now.saturating_sub(image.last_used)),
        ]);
    }
    out!("{}", text::table(&rows));
    Ok(())
}

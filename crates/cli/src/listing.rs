//! `xebec images`.

use xebec_images::images::Images;
use xebec_images::known_images::known_images;
use xebec_kernel::clock::seconds_since_1970;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::args::ListImagesArgs;
use crate::text;

/// `xebec images`.
pub(crate) fn images(paths: &Paths, args: &ListImagesArgs) -> Result<(), Failure> {
    let images = known_images(&Images::open(paths)?)?;
    if args.json {
        return text::print_json(&images);
    }
    if args.quiet {
        images
            .iter()
            .for_each(|image| outln!("{}", image.manifest_digest));
        return Ok(());
    }
    let heads = ["IMAGE", "MANIFEST", "LAYERS", "SIZE", "CACHED", "USED"];
    let mut rows = vec![text::row(heads)];
    let now = seconds_since_1970();
    for image in images {
        let names: Vec<_> = image.references.iter().map(String::as_str).collect();
        let state = if image.is_only_here() {
            " (only on this host)"
        } else {
            ""
        };
        rows.push(vec![
            match names.is_empty() {
                true => format!("(none){state}"),
                false => names.join(", ") + state,
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

//! One manifest: an image, an index of images, or an artifact.

use maud::{Markup, html};
use xebec_kernel::size::for_people;

use super::{command, laziness, page, short};
use crate::page::path::encoded;
use crate::page::view::{Image, Part};

/// The page `/repositories/NAME@DIGEST`.
pub fn image(view: &Image) -> String {
    let of_images = view.parts.iter().any(|part| part.is_manifest);
    let total = view.parts.iter().map(|part| part.size).sum();
    let content = html! {
        dl {
            dt { "Digest" } dd { code { (view.digest) } }
            dt { "Media type" } dd { (view.media_type) }
            @if !view.tags.is_empty() { dt { "Tags" } dd { (view.tags.join(", ")) } }
            @if let Some(platform) = &view.platform { dt { "Platform" } dd { (platform) } }
            @if !of_images { dt { "Size" } dd { (for_people(total)) } }
            dt { "Start" } dd { (laziness(&view.laziness)) }
        }
        (command(&format!("xebec run --rm {}/{}@{}", view.host, view.repository, view.digest)))
        h2 { @if of_images { "Images" } @else { "Layers" } }
        (parts(view))
        h2 { "Referred to by" }
        (referrers(view))
    };
    page(
        &format!("{} @ {}", view.repository, short(&view.digest)),
        &content,
    )
    .into_string()
}

fn address(view: &Image, digest: &str) -> String {
    format!("/repositories/{}@{digest}", encoded(&view.repository))
}

fn parts(view: &Image) -> Markup {
    let digest = |part: &Part| {
        let text = html! { code { (short(&part.digest)) } };
        match part.is_manifest {
            true => html! { a href=(address(view, &part.digest)) { (text) } },
            false => text,
        }
    };
    html! {
        @if view.parts.is_empty() { p { "None." } } @else {
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Digest" } th.number scope="col" { "Size" } th scope="col" { "Media type" } th scope="col" { "Remark" } } }
                    tbody {
                        @for part in &view.parts {
                            tr {
                                th scope="row" { (digest(part)) }
                                td.number { (for_people(part.size)) }
                                td { (part.media_type) }
                                td { (part.remark) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn referrers(view: &Image) -> Markup {
    html! {
        @if view.referrers.is_empty() {
            p { "Nothing: no signature, no index of layers, no recording." }
        } @else {
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Digest" } th scope="col" { "What it is" } th scope="col" { "Artifact type" } th.number scope="col" { "Size" } } }
                    tbody {
                        @for referrer in &view.referrers {
                            tr {
                                th scope="row" { a href=(address(view, &referrer.digest)) { code { (short(&referrer.digest)) } } }
                                td { (referrer.kind) }
                                td { (referrer.artifact_type) }
                                td.number { (for_people(referrer.size)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::{Laziness, Referrer};

    fn view() -> Image {
        Image {
            host: "registry.example".to_owned(),
            repository: "team/app".to_owned(),
            digest: format!("sha256:{}", "12".repeat(32)),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            tags: vec!["1.0".to_owned()],
            platform: Some("linux/amd64".to_owned()),
            parts: vec![Part {
                digest: format!("sha256:{}", "34".repeat(32)),
                media_type: "application/vnd.oci.image.layer.v1.tar+gzip".to_owned(),
                size: 5_000_000,
                remark: "<b>".to_owned(),
                is_manifest: false,
            }],
            referrers: Vec::new(),
            laziness: Laziness::Partly {
                indexed: 0,
                layers: 1,
            },
        }
    }

    #[test]
    fn layers_and_what_refers_to_an_image_are_shown() {
        let page = image(&view());
        for part in ["Layers", "5.0 MB", "0 of 1 layers", "&lt;b&gt;", "no recording"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn images_of_an_index_and_referrers_have_pages() {
        let mut view = view();
        for part in &mut view.parts {
            part.is_manifest = true;
        }
        view.referrers = vec![Referrer {
            digest: format!("sha256:{}", "56".repeat(32)),
            artifact_type: "application/vnd.example".to_owned(),
            kind: "signature".to_owned(),
            size: 10,
        }];
        let page = image(&view);
        for part in ["Images", "@sha256:3434", "@sha256:5656", "signature"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

//! One manifest: an image, an index of images, or an artifact.

use maud::{Markup, html};
use xebec_kernel::size::for_people;

use super::{command, laziness, page, scrolling, short};
use crate::page::path::encoded;
use crate::page::view::{Image, Laziness, Part, Visitor};

/// The page `/repositories/NAME@DIGEST`.
pub fn image(who: &Visitor, view: &Image) -> String {
    let of_images = view.parts.iter().any(|part| part.is_manifest);
    let total = view
        .parts
        .iter()
        .map(|part| part.size)
        .fold(0, u64::saturating_add);
    let content = html! {
        dl {
            dt { "Repository" } dd { a href={ "/repositories/" (encoded(&view.repository)) } { (view.repository) } }
            @if let Some(upstream) = &view.upstream { dt { "Copy of" } dd { "an image of " (upstream) } }
            dt { "Digest" } dd { code { (view.digest) } }
            dt { "Media type" } dd { (view.media_type) }
            @if !view.tags.is_empty() { dt { "Tags" } dd { (view.tags.join(", ")) } }
            @if let Some(platform) = &view.platform { dt { "Platform" } dd { (platform) } }
            @if !of_images { dt { "Size" } dd { (for_people(total)) } }
            @if let Some(kind) = &view.artifact_type { dt { "Artifact type" } dd { (kind) } }
            @if let Some(subject) = &view.subject { dt { "Refers to" } dd { a href=(address(view, subject)) { code { (subject) } } } }
            @if view.laziness != Laziness::DoesNotApply { dt { "Start" } dd { (laziness(&view.laziness)) } }
        }
        (commands(view, of_images))
        (parts(view, of_images))
        h2 { "Referred to by" }
        (referrers(view))
    };
    let heading = format!("{} @ {}", view.repository, short(&view.digest));
    page(who, &heading, &content).into_string()
}

/// How to run an image, by its tag and for ever the same one; how to fetch what is none.
fn commands(view: &Image, of_images: bool) -> Markup {
    let name = format!("{}/{}", view.host, view.repository);
    let by_digest = format!("{name}@{}", view.digest);
    if !of_images && view.laziness == Laziness::DoesNotApply {
        return command(&format!("oras pull {by_digest}"));
    }
    html! {
        @if let Some(tag) = view.tags.first() { (command(&format!("xebec run --rm {name}:{tag}"))) }
        (command(&format!("xebec run --rm {by_digest}")))
    }
}

fn address(view: &Image, digest: &str) -> String {
    format!("/repositories/{}@{digest}", encoded(&view.repository))
}

fn parts(view: &Image, of_images: bool) -> Markup {
    let digest = |part: &Part| {
        let text = html! { code { (short(&part.digest)) } };
        match part.is_manifest {
            true => html! { a href=(address(view, &part.digest)) { (text) } },
            false => text,
        }
    };
    let (label, remark) = match (of_images, &view.laziness) {
        (true, _) => ("Images", "Platform"),
        (false, Laziness::DoesNotApply) => ("Parts", "Remark"),
        (false, _) => ("Layers", "Index"),
    };
    let table = html! {
        table {
            thead { tr { th scope="col" { "Digest" } th scope="col" { (remark) } th.number scope="col" { "Size" } th scope="col" { "Media type" } } }
            tbody {
                @for part in &view.parts {
                    tr {
                        th scope="row" { (digest(part)) }
                        td { (part.remark) }
                        td.number { (for_people(part.size)) }
                        td { (part.media_type) }
                    }
                }
            }
        }
    };
    html! {
        h2 { (label) }
        @if view.parts.is_empty() { p { "None." } } @else { (scrolling(label, &table)) }
        @if view.more_parts > 0 { p { "And " (view.more_parts) " more." } }
    }
}

fn referrers(view: &Image) -> Markup {
    let table = html! {
        table {
            thead { tr { th scope="col" { "Digest" } th scope="col" { "What it is" } th.number scope="col" { "Size" } th scope="col" { "Artifact type" } } }
            tbody {
                @for referrer in &view.referrers {
                    tr {
                        th scope="row" { a href=(address(view, &referrer.digest)) { code { (short(&referrer.digest)) } } }
                        td { (referrer.kind) }
                        td.number { (for_people(referrer.size)) }
                        td { (referrer.artifact_type) }
                    }
                }
            }
        }
    };
    html! {
        @if view.referrers.is_empty() { p { "Nothing: no signature, no index of layers, no recording." } }
        @else { (scrolling("Referred to by", &table)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::Referrer;

    fn view() -> Image {
        Image {
            host: "registry.example".to_owned(),
            repository: "team/app".to_owned(),
            upstream: None,
            digest: format!("sha256:{}", "12".repeat(32)),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            tags: vec!["1.0".to_owned()],
            platform: Some("linux/amd64".to_owned()),
            artifact_type: None,
            subject: Some(format!("sha256:{}", "78".repeat(32))),
            parts: vec![Part {
                digest: format!("sha256:{}", "34".repeat(32)),
                media_type: "application/vnd.oci.image.layer.v1.tar+gzip".to_owned(),
                size: 5_000_000,
                remark: "<b>".to_owned(),
                is_manifest: false,
            }],
            more_parts: 0,
            referrers: Vec::new(),
            laziness: Laziness::Partly {
                indexed: 0,
                layers: 1,
            },
        }
    }

    #[test]
    fn layers_and_what_refers_to_an_image_are_shown() {
        let page = image(&Visitor::default(), &view());
        for part in [
            "Layers",
            "5.0 MB",
            "@sha256:7878",
            "0 of 1 layers",
            "&lt;b&gt;",
            "no recording",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn sizes_that_nothing_can_have_are_shown_and_a_signature_is_not_run() {
        let mut view = view();
        let part = view.parts[0].clone();
        view.parts = vec![
            Part {
                size: u64::MAX,
                ..part
            };
            2
        ];
        view.laziness = Laziness::DoesNotApply;
        let page = image(&Visitor::default(), &view);
        assert!(
            page.contains("oras pull") && !page.contains("xebec run"),
            "{page}"
        );
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
        let page = image(&Visitor::default(), &view);
        for part in ["Images", "@sha256:3434", "@sha256:5656", "signature"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

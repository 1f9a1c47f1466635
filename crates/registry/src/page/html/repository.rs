//! The tags of one repository.

use maud::html;
use xebec_kernel::size::for_people;

use super::{command, laziness, moment, next, page, short};
use crate::page::path::encoded;
use crate::page::view::Repository;

/// The page `/repositories/NAME`.
pub fn repository(view: &Repository) -> String {
    let name = encoded(&view.name);
    let more = view
        .next
        .as_ref()
        .map(|last| format!("/repositories/{name}?after={}", encoded(last)));
    let content = html! {
        @if view.tags.is_empty() {
            p { "No tag is here. Images may still be named by digest." }
        } @else {
            form role="search" action="" method="get" {
                label for="search" { "Filter" }
                input id="search" type="search" data-filters="tags";
            }
            div.scroll {
                table id="tags" {
                    caption { "Tags of " (view.name) }
                    thead {
                        tr {
                            th scope="col" { "Tag" }
                            th scope="col" { "Manifest" }
                            th scope="col" { "Platforms" }
                            th.number scope="col" { "Size" }
                            th scope="col" { "Changed (UTC)" }
                            th scope="col" { "Start" }
                        }
                    }
                    tbody {
                        @for row in &view.tags {
                            tr {
                                th scope="row" { (row.tag) }
                                td { a href={ "/repositories/" (name) "@" (row.digest) } { code { (short(&row.digest)) } } }
                                td { (row.platforms.join(", ")) }
                                td.number { @if let Some(size) = row.size { (for_people(size)) } }
                                td { (moment(row.updated_ms)) }
                                td { (laziness(&row.laziness)) }
                            }
                        }
                    }
                }
            }
            (next(more))
            @if let Some(first) = view.tags.first() {
                h2 { "Run it" }
                (command(&format!("xebec run --rm {}/{}:{}", view.host, view.name, first.tag)))
                (command(&format!("docker pull {}/{}:{}", view.host, view.name, first.tag)))
            }
        }
    };
    page(&view.name, &content).into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::{Laziness, TagRow};

    #[test]
    fn a_tag_has_its_image_and_a_line_to_copy() {
        let page = repository(&Repository {
            host: "registry.example:5000".to_owned(),
            name: "team/app".to_owned(),
            tags: vec![TagRow {
                tag: "1.0".to_owned(),
                digest: format!("sha256:{}", "ab".repeat(32)),
                platforms: vec!["linux/amd64".to_owned(), "linux/arm64".to_owned()],
                size: Some(48_800_000),
                updated_ms: 0,
                laziness: Laziness::Lazy,
            }],
            next: Some("1.0".to_owned()),
        });
        for part in [
            "abababababab</code>",
            "linux/amd64, linux/arm64",
            "48.8 MB",
            "lazy",
            "xebec run --rm registry.example:5000/team/app:1.0",
            "/repositories/team/app?after=1.0",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

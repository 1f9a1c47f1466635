//! The tags of one repository.

use maud::{Markup, html};
use xebec_kernel::size::for_people;
use xebec_store::RepositorySpace;

use super::{command, laziness, moment, next, next_address, page, scrolling, search, short};
use crate::page::path::encoded;
use crate::page::view::{Repository, Visitor};

/// The page `/repositories/NAME`.
pub fn repository(who: &Visitor, view: &Repository) -> String {
    let path = format!("/repositories/{}", encoded(&view.name));
    let is_empty = view.tags.is_empty() && view.search.is_empty() && view.next.is_none();
    let content = html! {
        @if let Some(upstream) = &view.upstream { p { "Copies of images of " strong { (upstream) } ", fetched when they are asked for." } }
        @if is_empty {
            p { "No tag is here. Images may still be named by digest." }
        } @else {
            (search("tags", "Tag contains", &path, &view.search))
            @if view.tags.is_empty() { p { "No tag of those that were looked at contains “" (view.search) "”." } }
            @else { (scrolling("Tags", &table(view, &path))) }
            (next(next_address(&path, &view.search, view.next.as_ref())))
        }
        @if let Some(space) = view.space.as_ref().filter(|space| space.blobs > 0) { (room(space)) }
        @if let Some(first) = view.tags.first() {
            h2 { "Run it" }
            (command(&format!("xebec run --rm {}/{}:{}", view.host, view.name, first.tag)))
            (command(&format!("docker pull {}/{}:{}", view.host, view.name, first.tag)))
        }
    };
    page(who, &view.name, &content).into_string()
}

/// A sentence on the room that its blobs take up.
fn room(space: &RepositorySpace) -> Markup {
    html! {
        p.soft {
            "Its " (space.blobs) @if space.blobs == 1 { " blob has " } @else { " blobs have " } (for_people(space.bytes)) ", as pushed."
            @if space.recipes > 0 {
                " " (for_people(space.recipe_bytes)) " of that, in " (space.recipes)
                @if space.recipes == 1 { " blob, is " } @else { " blobs, are " } "kept as recipes and files that are here once."
            }
        }
    }
}

fn table(view: &Repository, path: &str) -> Markup {
    html! {
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
                        th scope="row" { a href={ (path) "@" (row.digest) } { (row.tag) } }
                        td { code { (short(&row.digest)) } }
                        td { (row.platforms.join(", ")) }
                        td.number { @if let Some(size) = row.size { (for_people(size)) } }
                        td { (moment(row.updated_ms)) }
                        td { (laziness(&row.laziness)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::{Laziness, TagRow};

    #[test]
    fn a_tag_has_its_image_and_a_line_to_copy() {
        let page = repository(
            &Visitor::default(),
            &Repository {
                host: "registry.example:5000".to_owned(),
                name: "team/app".to_owned(),
                search: "1".to_owned(),
                upstream: Some("docker.io".to_owned()),
                tags: vec![TagRow {
                    tag: "1.0".to_owned(),
                    digest: format!("sha256:{}", "ab".repeat(32)),
                    platforms: vec!["linux/amd64".to_owned(), "linux/arm64".to_owned()],
                    size: Some(48_800_000),
                    updated_ms: 0,
                    laziness: Laziness::Lazy,
                }],
                next: Some("1.0".to_owned()),
                space: Some(RepositorySpace {
                    blobs: 3,
                    bytes: 50_000_000,
                    recipes: 1,
                    recipe_bytes: 48_800_000,
                }),
            },
        );
        for part in [
            "abababababab</code>",
            "linux/amd64, linux/arm64",
            "48.8 MB",
            "lazy",
            "xebec run --rm registry.example:5000/team/app:1.0",
            "/repositories/team/app?search=1&amp;after=1.0",
            "Copies of images of <strong>docker.io",
            "Its 3 blobs have 50.0 MB, as pushed. 48.8 MB of that, in 1 blob, is kept as recipes",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

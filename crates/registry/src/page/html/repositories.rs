//! The list of repositories.

use maud::html;

use super::{moment, next, page};
use crate::page::ROWS;
use crate::page::path::encoded;
use crate::page::view::Repositories;

/// The page `/`.
pub fn repositories(view: &Repositories) -> String {
    let more = view.next.as_ref().map(|last| {
        let search = match view.search.as_str() {
            "" => String::new(),
            search => format!("search={}&", encoded(search)),
        };
        format!("/?{search}after={}", encoded(last))
    });
    let content = html! {
        form role="search" action="/" method="get" {
            label for="search" { "Name contains" }
            input id="search" type="search" name="search" value=(view.search) data-filters="repositories";
            button type="submit" { "Search" }
        }
        @if view.rows.is_empty() {
            @if view.search.is_empty() {
                p { "No repository has an image yet. Push one:" }
                (super::command("skopeo copy docker://docker.io/library/nginx:1 docker://HOST:PORT/nginx:1"))
            } @else {
                p { "No repository that you may see has a name that contains “" (view.search) "”." }
            }
        } @else {
            div.scroll {
                table id="repositories" {
                    caption { "Repositories that you may pull from" }
                    thead { tr { th scope="col" { "Name" } th.number scope="col" { "Tags" } th scope="col" { "Changed (UTC)" } } }
                    tbody {
                        @for row in &view.rows {
                            tr {
                                th scope="row" { a href={ "/repositories/" (encoded(&row.name)) } { (row.name) } }
                                td.number { (row.tags) @if row.tags >= ROWS { "+" } }
                                td { @if let Some(updated) = row.updated_ms { (moment(updated)) } }
                            }
                        }
                    }
                }
            }
            (next(more))
        }
    };
    page("Repositories", &content).into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::RepositoryRow;

    #[test]
    fn the_next_page_keeps_the_search() {
        let row = RepositoryRow {
            name: "team/app".to_owned(),
            tags: ROWS,
            updated_ms: Some(1_700_000_000_000),
        };
        let page = repositories(&Repositories {
            search: "a b".to_owned(),
            rows: vec![row],
            next: Some("team/app".to_owned()),
        });
        for part in [
            "href=\"/repositories/team/app\"",
            "100+",
            "2023-11-14 22:13:20",
            "/?search=a%20b&amp;after=team/app",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn an_empty_registry_says_how_to_push() {
        let page = repositories(&Repositories::default());
        assert!(page.contains("skopeo copy"), "{page}");
    }
}

//! The list of repositories.

use maud::{Markup, html};

use super::{moment, next, next_address, page, scrolling, search};
use crate::page::MOST_TAGS;
use crate::page::path::encoded;
use crate::page::view::{Repositories, Visitor};

/// The page `/`.
pub fn repositories(who: &Visitor, view: &Repositories) -> String {
    let is_empty = view.rows.is_empty() && view.next.is_none();
    let content = html! {
        @if !is_empty || !view.search.is_empty() {
            (search("repositories", "Name contains", "/", &view.search))
        }
        @if view.rows.is_empty() { (nothing(who, view)) } @else { (scrolling("Repositories", &table(view))) }
        (next(next_address("/", &view.search, view.next.as_ref())))
    };
    page(who, "Repositories", &content).into_string()
}

fn table(view: &Repositories) -> Markup {
    html! {
        table id="repositories" {
            caption { "Repositories that you may pull from" }
            thead { tr { th scope="col" { "Name" } th.number scope="col" { "Tags" } th scope="col" { "Changed (UTC)" } } }
            tbody {
                @for row in &view.rows {
                    tr {
                        th scope="row" { a href={ "/repositories/" (encoded(&row.name)) } { (row.name) } }
                        td.number { (row.tags) @if row.tags >= MOST_TAGS { "+" } }
                        td { @if let Some(updated) = row.updated_ms { (moment(updated)) } }
                    }
                }
            }
        }
    }
}

fn nothing(who: &Visitor, view: &Repositories) -> Markup {
    html! {
        @if view.next.is_some() {
            p { "None of the names that were looked at. There are more to look at." }
        } @else if !view.search.is_empty() {
            p { "No repository that you may see has a name that contains “" (view.search) "”." }
        } @else if who.name.is_none() && who.can_log_in {
            p { "Nothing is here that everybody may see. " a href="/login" { "Log in" } " to see what you may." }
        } @else {
            p { "No repository is here that you may see. Push an image:" }
            (super::command("skopeo copy docker://docker.io/library/nginx:1 docker://HOST:PORT/nginx:1"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::RepositoryRow;

    #[test]
    fn the_next_page_keeps_the_search() {
        let row = RepositoryRow {
            name: "team/app".to_owned(),
            tags: MOST_TAGS,
            updated_ms: Some(1_700_000_000_000),
        };
        let page = repositories(
            &Visitor::default(),
            &Repositories {
                search: "a b".to_owned(),
                rows: vec![row],
                next: Some("team/app".to_owned()),
            },
        );
        for part in [
            "href=\"/repositories/team/app\"",
            "2000+",
            "2023-11-14 22:13:20",
            "/?search=a%20b&amp;after=team/app",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_search_that_has_found_nothing_yet_goes_on() {
        let page = repositories(
            &Visitor::default(),
            &Repositories {
                search: "x".to_owned(),
                rows: Vec::new(),
                next: Some("team/app".to_owned()),
            },
        );
        assert!(page.contains("/?search=x&amp;after=team/app"), "{page}");
    }

    #[test]
    fn an_empty_registry_says_how_to_push() {
        let page = repositories(&Visitor::default(), &Repositories::default());
        assert!(page.contains("skopeo copy"), "{page}");
    }
}

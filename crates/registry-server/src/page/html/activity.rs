//! Recent errors and slow requests.

use maud::{Markup, html};

use super::{moment, page, scrolling};
use crate::page::activity::Entry;
use crate::page::view::Visitor;

/// The page `/activity`.
pub fn activity(who: &Visitor, errors: &[Entry], slow: &[Entry]) -> String {
    let content = html! {
        p.soft { "Since this process started; the latest first. The log has each request by its id." }
        h2 { "Errors" }
        (table("Errors", errors, "No request failed."))
        h2 { "Slow requests" }
        (table("Slow requests", slow, "No request was slow."))
    };
    page(who, "Activity", &content).into_string()
}

fn table(label: &str, entries: &[Entry], none: &str) -> Markup {
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "When (UTC)" }
                    th scope="col" { "Request" }
                    th.number scope="col" { "Status" }
                    th.number scope="col" { "Took" }
                    th scope="col" { "Id" }
                }
            }
            tbody {
                @for entry in entries {
                    tr {
                        th scope="row" { (moment(entry.at_ms)) }
                        td { code { (entry.request) } }
                        td.number { (entry.status) }
                        td.number { (entry.took_ms) " ms" }
                        td { code { (entry.id) } }
                    }
                }
            }
        }
    };
    html! { @if entries.is_empty() { p { (none) } } @else { (scrolling(label, &table)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_with_their_ids() {
        let entry = Entry {
            at_ms: 0,
            request: "GET /v2/team/app/manifests/1".to_owned(),
            repository: Some("team/app".to_owned()),
            status: 502,
            took_ms: 31,
            id: "4f2a".to_owned(),
        };
        let page = activity(&Visitor::default(), std::slice::from_ref(&entry), &[]);
        for part in ["502", "31 ms", "4f2a", "No request was slow."] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

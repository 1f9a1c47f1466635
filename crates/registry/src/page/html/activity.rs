//! Recent errors and slow requests.

use maud::{Markup, html};

use super::{moment, page};
use crate::page::activity::Entry;

/// The page `/activity`.
pub fn activity(errors: &[Entry], slow: &[Entry]) -> String {
    let content = html! {
        p.soft { "Since this process started; the latest first. The log has each request by its id." }
        h2 { "Errors" }
        (table(errors, "No request failed."))
        h2 { "Slow requests" }
        (table(slow, "No request was slow."))
    };
    page("Activity", &content).into_string()
}

fn table(entries: &[Entry], none: &str) -> Markup {
    html! {
        @if entries.is_empty() { p { (none) } } @else {
            div.scroll {
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
                                td { (moment(entry.at_ms)) }
                                td { code { (entry.request) } }
                                td.number { (entry.status) }
                                td.number { (entry.took_ms) " ms" }
                                td { code { (entry.id) } }
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
        let page = activity(std::slice::from_ref(&entry), &[]);
        for part in ["502", "31 ms", "4f2a", "No request was slow."] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

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
                            th scope="col" { "What was answered" }
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
                                td { (entry.detail) }
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
    fn errors_say_what_was_answered() {
        let entry = Entry {
            at_ms: 0,
            request: "GET /v2/team/app/manifests/1".to_owned(),
            repository: Some("team/app".to_owned()),
            status: 502,
            took_ms: 31,
            detail: "the upstream is away".to_owned(),
            id: "4f2a".to_owned(),
        };
        let page = activity(std::slice::from_ref(&entry), &[]);
        for part in [
            "502",
            "31 ms",
            "the upstream is away",
            "4f2a",
            "No request was slow.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

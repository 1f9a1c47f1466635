//! Pages as HTML, from what they show. All text is escaped by `maud`.

mod activity;
mod image;
mod repositories;
mod repository;
mod space;

use maud::{DOCTYPE, Markup, html};
use xebec_kernel::clock::rfc3339;

use super::path::encoded;
use super::view::{Laziness, Visitor};

pub use activity::activity;
pub use image::image;
pub use repositories::repositories;
pub use repository::repository;
pub use space::space;

/// Hexadecimal digits of a digest that are shown where the whole one is a link.
const SHORT: usize = 12;

/// A whole page: `heading`, and `content` below it.
fn page(who: &Visitor, heading: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (heading) " · Xebec registry" }
                link rel="icon" type="image/svg+xml" href="/page.svg";
                link rel="stylesheet" href="/page.css";
                script src="/page.js" defer {}
            }
            body {
                a.skip href="#content" { "To the content" }
                header {
                    strong { img src="/page.svg" alt="" width="20" height="20"; "Xebec registry" }
                    nav aria-label="Pages" {
                        a href="/" { "Repositories" }
                        a href="/activity" { "Activity" }
                        @if who.administers { a href="/space" { "Space" } }
                    }
                    @match (&who.name, who.can_log_in) {
                        (Some(name), _) => span.who { "Logged in as " (name) },
                        (None, true) => a.who href="/login" { "Log in" },
                        (None, false) => {}
                    }
                }
                main id="content" tabindex="-1" {
                    h1 { (heading) }
                    (content)
                }
            }
        }
    }
}

/// The page for what is not there, or may not be seen.
pub fn problem(who: &Visitor, heading: &str, sentence: &str) -> String {
    let content = html! { p { (sentence) } p { a href="/" { "All repositories" } } };
    page(who, heading, &content).into_string()
}

/// A shell line, to which a script adds a button that copies it.
fn command(line: &str) -> Markup {
    html! { div.command { code { (line) } } }
}

/// A form that searches the rows of the table `id`, here and beyond this page.
fn search(id: &str, label: &str, action: &str, text: &str) -> Markup {
    html! {
        form role="search" action=(action) method="get" {
            label for="search" { (label) }
            input id="search" type="search" name="search" value=(text) autocomplete="off" data-filters=(id);
            button type="submit" { "Search" }
        }
        p.soft role="status" id="found" {}
    }
}

/// A table that scrolls by itself where it is wider than the window, also by the keyboard.
fn scrolling(label: &str, table: &Markup) -> Markup {
    html! { div.scroll role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// The address of the next part of a list.
fn next_address(path: &str, search: &str, last: Option<&String>) -> Option<String> {
    let search = match search {
        "" => String::new(),
        search => format!("search={}&", encoded(search)),
    };
    Some(format!("{path}?{search}after={}", encoded(last?)))
}

/// A moment, in UTC.
fn moment(milliseconds: u64) -> Markup {
    let text = rfc3339(milliseconds / 1000);
    html! { time datetime=(text) { (text.replace('T', " ").trim_end_matches('Z')) } }
}

/// The first digits of a digest.
fn short(digest: &str) -> String {
    let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
    digits.chars().take(SHORT).collect()
}

/// Whether an image is lazy, in words.
fn laziness(laziness: &Laziness) -> Markup {
    match laziness {
        Laziness::Lazy => html! { span.good { "lazy" } },
        Laziness::Partly { indexed, layers } => html! {
            span.warn { "partly lazy" } (format!(" ({indexed} of {layers} layers are indexed)"))
        },
        Laziness::Some { lazy, images } => html! {
            span.warn { "partly lazy" } (format!(" ({lazy} of {images} images)"))
        },
        Laziness::Not => html! { span.warn { "not lazy" } " (no layer is indexed)" },
        Laziness::DoesNotApply => html! { span.soft { "–" } },
    }
}

/// A link to the next part of a list.
fn next(address: Option<String>) -> Markup {
    html! {
        @if let Some(address) = address {
            p { a rel="next" href=(address) { "More" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup() {
        let page = problem(
            &Visitor::default(),
            "<script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
        );
        assert!(
            !page.contains("<script>") && !page.contains("<img src=x"),
            "{page}"
        );
    }

    #[test]
    fn who_has_not_logged_in_is_led_there_if_they_can() {
        let shown = |name: Option<&str>, can_log_in| {
            let name = name.map(str::to_owned);
            let who = Visitor {
                name,
                can_log_in,
                ..Visitor::default()
            };
            problem(&who, "Not found", "Nothing.")
        };
        assert!(shown(None, true).contains("href=\"/login\""));
        assert!(!shown(None, false).contains("/login"));
        let known = shown(Some("<b>anna"), true);
        assert!(
            known.contains("Logged in as &lt;b&gt;anna") && !known.contains("/login"),
            "{known}"
        );
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_nothing_is_inline() {
        let page = problem(
            &Visitor::default(),
            "Nothing here",
            "No repository has this name.",
        );
        for word in ["http:", "https:", "//", " style=", " onclick=", "<style"] {
            assert!(!page.contains(word), "{word}: {page}");
        }
        for word in ["<html lang=\"en\">", "<main id=\"content\"", "aria-label"] {
            assert!(page.contains(word), "{word}: {page}");
        }
    }
}

//! Pages as HTML, from what they show. All text is escaped by `maud`.

mod activity;
mod image;
mod repositories;
mod repository;

use maud::{DOCTYPE, Markup, html};
use xebec_kernel::clock::rfc3339;

use super::view::Laziness;

pub use activity::activity;
pub use image::image;
pub use repositories::repositories;
pub use repository::repository;

/// Hexadecimal digits of a digest that are shown where the whole one is a link.
const SHORT: usize = 12;

/// A whole page: `heading`, and `content` below it.
fn page(heading: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (heading) " · Xebec registry" }
                link rel="stylesheet" href="/page.css";
                script src="/page.js" defer {}
            }
            body {
                a.skip href="#content" { "To the content" }
                header {
                    strong { "Xebec registry" }
                    nav aria-label="Pages" {
                        a href="/" { "Repositories" }
                        a href="/activity" { "Activity" }
                    }
                }
                main id="content" {
                    h1 { (heading) }
                    (content)
                }
            }
        }
    }
}

/// The page for what is not there, or may not be seen.
pub fn problem(heading: &str, sentence: &str) -> String {
    page(
        heading,
        &html! { p { (sentence) } p { a href="/" { "All repositories" } } },
    )
    .into_string()
}

/// A shell line with a button that copies it.
fn command(line: &str) -> Markup {
    html! { div.command { code { (line) } } }
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
        let page = problem("<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>");
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_nothing_is_inline() {
        let page = problem("Nothing here", "No repository has this name.");
        for word in ["http:", "https:", "//", " style=", " onclick=", "<style"] {
            assert!(!page.contains(word), "{word}: {page}");
        }
        for word in ["<html lang=\"en\">", "<main id=\"content\">", "aria-label"] {
            assert!(page.contains(word), "{word}: {page}");
        }
    }
}

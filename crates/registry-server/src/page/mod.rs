//! The page for people: what the registry holds, read-only, behind the same rights as the API.
//!
//! * [`Page`]: which page a path asks for. Pure.
//! * [`view`]: what a page shows; [`gather`] finds it in the store.
//! * [`html`]: a page's markup, from what it shows. It works without scripts; with them it copies commands and filters as one types.
//! * [`answer`]: from a request to its answer.
//! * [`activity`]: recent errors and slow requests, bounded.
//!
//! Nothing is loaded from elsewhere: [`CONTENT_SECURITY_POLICY`] allows this server's style and script and nothing more.

pub mod activity;
mod answer;
pub mod gather;
pub mod html;
pub mod path;
mod platform;
pub mod view;

pub use answer::answer;
pub use path::Page;

/// The style of all pages.
pub const STYLE: &str = include_str!("page.css");
/// The picture that browsers show beside a page's title.
pub const ICON: &str = include_str!("page.svg");
/// The additions for a browser with scripts.
pub const SCRIPT: &str = include_str!("page.js");
/// `Content-Security-Policy` of each page: no frames, no foreign resources, no inline code.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                                           form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Rows on one page of a list.
pub const ROWS: usize = 100;
/// Tags of a repository that are counted for a list of repositories.
pub const MOST_TAGS: usize = 2000;

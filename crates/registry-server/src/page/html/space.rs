//! The room that everything takes up, and what it saves that each file is kept once.

use maud::{Markup, html};
use xebec_dedup::{Figures, Hits};
use xebec_kernel::size::{for_people, share};
use xebec_store::Space as Room;

use super::{page, scrolling};
use crate::page::view::{Space, Visitor};

/// The width of the picture, in its own units.
const WIDTH: u64 = 1000;
/// The height of a bar, and from the top of one to the top of the next.
const BAR: u64 = 26;
const STEP: u64 = 34;

/// The page `/space`.
pub fn space(who: &Visitor, view: &Space) -> String {
    let room = &*view.room;
    let content = html! {
        @if room.blobs == 0 { p { "Nothing is stored yet." } }
        @else {
            p { (saved(room)) }
            (bars(room))
            (scrolling("What is stored", &table(room)))
        }
        @if !room.places.is_empty() {
            h2 { "Copies on other places" }
            (scrolling("Copies on other places", &places(room)))
            @if room.unplaced > 0 {
                p { (room.unplaced) " blobs, packs and links to blobs are still to be looked at." }
            }
        }
        h2 { "Taking apart" }
        (apart(view))
        @if !room.kept.is_empty() {
            h2 { "Why blobs stay as they were pushed" }
            (scrolling("Why blobs stay as they were pushed", &reasons(room)))
        }
        @if let Some(figures) = &view.restoring {
            h2 { "Restoring" }
            p.soft {
                "Since this process started. Blobs that were restored ahead have " (for_people(figures.file_bytes)) " now."
            }
            (scrolling("Restoring", &restoring(figures)))
        }
        p.soft { "The figures of what is stored are a minute old at most." }
    };
    page(who, "Space", &content).into_string()
}

fn stored(room: &Room) -> u64 {
    room.intact_bytes + room.pack_bytes + room.recipe_bytes
}

fn places(room: &Room) -> Markup {
    html! {
        table {
            caption { "Copies on other places" }
            thead {
                tr {
                    th scope="col" { "Place" }
                    th.number scope="col" { "Copies, or shards" }
                    th.number scope="col" { "Size" }
                    th.number scope="col" { "Damaged or gone" }
                }
            }
            tbody {
                @for place in &room.places {
                    tr {
                        th scope="row" { (place.place) }
                        td.number { (place.replicas) }
                        td.number { (for_people(place.bytes)) }
                        td.number { (place.damaged) }
                    }
                }
            }
        }
        @if room.away_bytes > 0 {
            p.soft { (for_people(room.away_bytes)) " of what is stored is not on the main place." }
        }
    }
}

/// What the picture shows, in a sentence.
fn saved(room: &Room) -> String {
    let (pushed, stored) = (room.blob_bytes, stored(room));
    let part = share(stored, pushed);
    format!(
        "Clients have pushed {}. {} are stored, {part} of that.",
        for_people(pushed),
        for_people(stored)
    )
}

/// Two bars of one scale: what was pushed, and what is stored, by its kinds.
fn bars(room: &Room) -> Markup {
    let whole = room.blob_bytes.max(stored(room)).max(1);
    let scaled = |bytes: u64| {
        let width = u128::from(bytes) * u128::from(WIDTH) / u128::from(whole);
        u64::try_from(width).unwrap_or(WIDTH)
    };
    let mut at = 0;
    let parts = [
        ("intact", room.intact_bytes),
        ("packs", room.pack_bytes),
        ("recipes", room.recipe_bytes),
    ];
    let parts = parts.map(|(class, bytes)| {
        let from = at;
        at += bytes;
        (class, scaled(from), scaled(at) - scaled(from))
    });
    html! {
        svg.bars viewBox={ "0 0 " (WIDTH) " " (BAR + STEP) } preserveAspectRatio="none" role="img" aria-labelledby="bars" {
            title id="bars" { (saved(room)) }
            rect.pushed x="0" y="0" width=(scaled(room.blob_bytes)) height=(BAR) {}
            @for (class, from, width) in parts {
                rect class=(class) x=(from) y=(STEP) width=(width) height=(BAR) {}
            }
        }
    }
}

/// A colour of the picture.
fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch viewBox="0 0 1 1" aria-hidden="true" { rect class=(class) width="1" height="1" {} }
        " "
    }
}

fn table(room: &Room) -> Markup {
    let of_blobs = |count: u64| format!("{count}");
    let chunks = format!("{} with {} files or parts of files", room.packs, room.chunks);
    let rows = [
        (
            "pushed",
            "As pushed",
            of_blobs(room.blobs),
            room.blob_bytes,
            room.blob_bytes,
        ),
        (
            "intact",
            "Stored as pushed",
            of_blobs(room.intact),
            room.intact_bytes,
            room.intact_bytes,
        ),
        (
            "packs",
            "Packs of files",
            chunks,
            room.pack_bytes,
            room.chunk_bytes,
        ),
        (
            "recipes",
            "Recipes",
            of_blobs(room.recipes),
            room.recipe_bytes,
            room.plain_bytes,
        ),
    ];
    html! {
        table {
            caption { "What is stored" }
            thead {
                tr {
                    th scope="col" { "What" }
                    th scope="col" { "How many" }
                    th.number scope="col" { "Size" }
                    th.number scope="col" { "Without compression" }
                }
            }
            tbody {
                @for (class, name, count, bytes, plain) in rows {
                    tr {
                        th scope="row" { (swatch(class)) (name) }
                        td { (count) }
                        td.number { (for_people(bytes)) }
                        td.number { @if plain != bytes { (for_people(plain)) } }
                    }
                }
            }
        }
    }
}

/// The blobs that wait or are not taken apart.
fn apart(view: &Space) -> Markup {
    let room = &view.room;
    html! {
        @if !view.deduplicates {
            p { "Blobs stay as they are pushed: " code { "deduplication.enabled" } " is not set." }
        }
        dl {
            dt { "Taken apart" } dd { (room.recipes) }
            dt { @if view.deduplicates { "Waiting" } @else { "Would be taken apart" } } dd { (room.waiting) }
            dt { "Too small" } dd { (room.small) }
            dt { "Stay as pushed" } dd { (room.kept_blobs) }
        }
    }
}

fn reasons(room: &Room) -> Markup {
    html! {
        table {
            caption { "The most common reasons" }
            thead { tr { th.number scope="col" { "Blobs" } th scope="col" { "Reason" } } }
            tbody {
                @for (reason, count) in &room.kept {
                    tr { td.number { (count) } th scope="row" { (reason) } }
                }
            }
        }
    }
}

fn restoring(figures: &Figures) -> Markup {
    let rows = [
        ("Blobs restored ahead", figures.blobs),
        ("Restored parts of blobs", figures.units),
        ("Frames of packs", figures.frames),
        ("Recipes", figures.recipes),
    ];
    html! {
        table {
            caption { "How often what was needed was there" }
            thead {
                tr {
                    th scope="col" { "What" }
                    th.number scope="col" { "There" }
                    th.number scope="col" { "Waited for" }
                    th.number scope="col" { "Not there" }
                    th.number scope="col" { "There, of all" }
                }
            }
            tbody {
                @for (name, Hits { hit, waited, missed }) in rows {
                    tr {
                        th scope="row" { (name) }
                        td.number { (hit) }
                        td.number { (waited) }
                        td.number { (missed) }
                        td.number { (share(hit, hit + waited + missed)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xebec_store::PlaceSpace;

    use super::*;

    fn room() -> Room {
        Room {
            blobs: 5,
            blob_bytes: 2_000_000,
            intact: 2,
            intact_bytes: 200_000,
            packs: 1,
            pack_bytes: 500_000,
            chunks: 31,
            chunk_bytes: 1_700_000,
            recipes: 3,
            recipe_bytes: 20_000,
            plain_bytes: 5_000_000,
            waiting: 7,
            small: 11,
            kept_blobs: 13,
            kept: vec![("it is <b>odd</b>".to_owned(), 13)],
            ..Room::default()
        }
    }

    fn shown(room: Room) -> String {
        let hits = |hit, waited, missed| Hits { hit, waited, missed };
        let view = Space {
            room: Arc::new(room),
            deduplicates: true,
            restoring: Some(Figures {
                blobs: hits(3, 0, 1),
                ..Figures::default()
            }),
        };
        space(&Visitor::default(), &view)
    }

    #[test]
    fn what_is_saved_is_a_picture_and_a_table() {
        let page = shown(room());
        for part in [
            "Clients have pushed 2.0 MB. 720.0 kB are stored, 36 % of that.</title>",
            "<rect class=\"pushed\" x=\"0\" y=\"0\" width=\"1000\"",
            "<rect class=\"intact\" x=\"0\" y=\"34\" width=\"100\"",
            "<rect class=\"packs\" x=\"100\" y=\"34\" width=\"250\"",
            "<rect class=\"recipes\" x=\"350\" y=\"34\" width=\"10\"",
            "1 with 31 files or parts of files",
            "<dt>Waiting</dt><dd>7</dd>",
            "<td class=\"number\">13</td><th scope=\"row\">it is &lt;b&gt;odd&lt;/b&gt;</th>",
            "<td class=\"number\">75 %</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains(" style="), "{page}");
    }

    #[test]
    fn other_places_are_listed_where_there_are_some() {
        assert!(!shown(room()).contains("Copies on other places"));
        let page = shown(Room {
            away_bytes: 1_000_000,
            places: vec![PlaceSpace {
                place: "cold".parse().unwrap(),
                replicas: 17,
                bytes: 3_000_000,
                damaged: 2,
            }],
            unplaced: 19,
            ..room()
        });
        for part in [
            "<th scope=\"row\">cold</th><td class=\"number\">17</td><td class=\"number\">3.0 MB</td><td class=\"number\">2</td>",
            "19 blobs, packs and links to blobs are still to be looked at.",
            "1.0 MB of what is stored is not on the main place.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn figures_that_cannot_be_make_no_picture_that_is_too_wide() {
        let much = u64::MAX / 4;
        let page = shown(Room {
            intact_bytes: much,
            pack_bytes: much,
            recipe_bytes: much,
            ..room()
        });
        assert!(
            page.contains("<rect class=\"recipes\" x=\"666\" y=\"34\" width=\"334\""),
            "{page}"
        );
    }

    #[test]
    fn an_empty_registry_has_no_picture() {
        let page = shown(Room::default());
        assert!(
            page.contains("Nothing is stored yet.") && !page.contains("<svg"),
            "{page}"
        );
    }
}

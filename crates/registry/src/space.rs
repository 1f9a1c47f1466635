//! `xebec-registry space`: the room that layers take up, and the room that they would take up if each were kept as it was pushed.

use serde_json::{Value, json};
use xebec_kernel::size;
use xebec_registry_server::config::LogFormat;
use xebec_store::{Space as Figures, Store};

use crate::args::Space;
use crate::logging;

/// Prints the figures.
pub(crate) fn space(args: &Space, verbose: u8) -> anyhow::Result<()> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    let figures = crate::program::carry_out(async {
        let store = Store::open(&config.store).await?;
        Ok(store.space().await?)
    })?;
    match args.json {
        true => outln!("{}", as_json(&figures)),
        false => say(&figures, config.deduplication.enabled),
    }
    Ok(())
}

fn stored(figures: &Figures) -> u64 {
    figures.intact_bytes + figures.pack_bytes + figures.recipe_bytes
}

fn say(figures: &Figures, is_enabled: bool) {
    let people = size::for_people;
    let stored = stored(figures);
    let share = |part: u64, of: u64| match of {
        0 => "0".to_owned(),
        of => format!("{:.1}", part as f64 * 100.0 / of as f64),
    };
    outln!(
        "{:>11}  blobs as they were pushed: {}",
        people(figures.blob_bytes),
        figures.blobs
    );
    outln!(
        "{:>11}  stored, {} % of that",
        people(stored),
        share(stored, figures.blob_bytes)
    );
    outln!(
        "{:>11}    intact blobs: {}",
        people(figures.intact_bytes),
        figures.intact
    );
    outln!(
        "{:>11}    packs: {}, with {} files, or parts of files, each of which is here once: {} without compression",
        people(figures.pack_bytes),
        figures.packs,
        figures.chunks,
        people(figures.chunk_bytes)
    );
    outln!(
        "{:>11}    recipes: {}, {} % of what is stored, for layers that have {} without compression",
        people(figures.recipe_bytes),
        figures.recipes,
        share(figures.recipe_bytes, stored),
        people(figures.plain_bytes)
    );
    say_places(figures);
    if figures.waiting > 0 && is_enabled {
        outln!("{:>11}  blobs wait to be taken apart", figures.waiting);
    } else if figures.waiting > 0 {
        outln!(
            "{:>11}  blobs would be taken apart if [deduplication] were enabled",
            figures.waiting
        );
    }
    if figures.small > 0 {
        outln!("{:>11}  blobs are too small for that", figures.small);
    }
    for (reason, count) in &figures.kept {
        outln!("{count:>11}  stay intact: {reason}");
    }
}

fn say_places(figures: &Figures) {
    let people = size::for_people;
    if figures.away_bytes > 0 {
        outln!(
            "{:>11}    of all these, not on the main place",
            people(figures.away_bytes)
        );
    }
    for place in &figures.places {
        outln!(
            "{:>11}  copies on {}: {}",
            people(place.bytes),
            place.place,
            place.replicas
        );
    }
}

fn as_json(figures: &Figures) -> Value {
    let kept: Vec<Value> = figures
        .kept
        .iter()
        .map(|(reason, count)| json!({"reason": reason, "blobs": count}))
        .collect();
    json!({
        "blobs": figures.blobs,
        "blob_bytes": figures.blob_bytes,
        "stored_bytes": stored(figures),
        "intact": figures.intact,
        "intact_bytes": figures.intact_bytes,
        "packs": figures.packs,
        "pack_bytes": figures.pack_bytes,
        "chunks": figures.chunks,
        "chunk_bytes": figures.chunk_bytes,
        "recipes": figures.recipes,
        "recipe_bytes": figures.recipe_bytes,
        "plain_bytes": figures.plain_bytes,
        "waiting": figures.waiting,
        "small": figures.small,
        "kept_blobs": figures.kept_blobs,
        "kept": kept,
        "away_bytes": figures.away_bytes,
        "places": figures.places.iter().map(crate::copies::place_as_json).collect::<Vec<_>>(),
        "unplaced": figures.unplaced,
    })
}

//! `xebec-registry copies`: where copies are, what the rules would change, and places that are lost.

use std::time::Duration;

use serde_json::{Value, json};
use xebec_kernel::size;
use xebec_placement::PlaceName;
use xebec_registry_server::config::{Config, LogFormat};
use xebec_replication::{Plan, Planned, plan};
use xebec_settings::period::Period;
use xebec_store::{PlaceSpace, Store};

use crate::args::Copies;
use crate::logging;
use crate::progress::Progress;

/// Carries the command out.
pub(crate) fn copies(args: &Copies, verbose: u8) -> anyhow::Result<()> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    crate::program::carry_out(async {
        let store = Store::open(&config.store).await?;
        match &args.lost {
            Some(place) => lose(&store, place, args.yes).await,
            None if args.plan => show_plan(&store, &config, args.json).await,
            None if args.check => {
                store.place_anew().await?;
                outln!("all copies are looked at again while the registry serves");
                Ok(())
            }
            None => show(&store, args.json).await,
        }
    })
}

async fn lose(store: &Store, place: &PlaceName, is_sure: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        !place.is_main(),
        "the place main is [storage] itself; restore it from a backup, or let `xebec-registry scrub` mend it from the other places"
    );
    let known = store.place_space().await?;
    anyhow::ensure!(
        known.iter().any(|known| known.place == *place),
        "this registry has never used a place {place}; `xebec-registry copies` lists those that it has used"
    );
    anyhow::ensure!(
        !store.has_place(place).await,
        "the place {place} is there, and has what this registry has put there; take it out of the rules of [[copies]], and its copies go by themselves"
    );
    let only_there = store.only_on(place).await?;
    anyhow::ensure!(
        only_there == 0 || is_sure,
        "{only_there} objects (packs, recipes, or blobs) have no copy but that on {place}: if you are sure that it does not come back, add --yes, and they are lost"
    );
    let lost = store.lose_place(place).await?;
    outln!(
        "forgot the place {place} and {lost} copies there; those that the rules want are made again while the registry serves"
    );
    outln!("`xebec-registry scrub` says whether anything was lost that has no other copy");
    Ok(())
}

async fn show(store: &Store, is_json: bool) -> anyhow::Result<()> {
    let places = store.place_space().await?;
    let waiting = match store.was_placed().await? {
        true => store.unplaced().await?,
        false => 0,
    };
    if is_json {
        let places: Vec<Value> = places.iter().map(place_as_json).collect();
        outln!("{}", json!({"places": places, "waiting": waiting}));
        return Ok(());
    }
    for place in &places {
        outln!(
            "{:>11}  on {}: {} copies, or shards of copies",
            size::for_people(place.bytes),
            place.place,
            place.replicas
        );
        if place.damaged > 0 {
            outln!(
                "{:>11}    of these are damaged or gone, and are made again",
                place.damaged
            );
        }
    }
    if places.is_empty() {
        outln!("no place but the main one has copies");
    }
    if waiting > 0 {
        outln!("{waiting:>11}  blobs, packs and links to blobs are still to be looked at; `serve` does that");
    }
    Ok(())
}

/// As `--json` prints a place.
pub(crate) fn place_as_json(place: &PlaceSpace) -> Value {
    json!({
        "place": place.place.to_string(),
        "copies": place.replicas,
        "bytes": place.bytes,
        "damaged": place.damaged,
    })
}

async fn show_plan(store: &Store, config: &Config, is_json: bool) -> anyhow::Result<()> {
    let mut progress = Progress::new();
    let plan = plan(store, &config.copies, |blobs| {
        progress.say(format_args!("{blobs} blobs were looked at"));
    })
    .await?;
    drop(progress);
    match is_json {
        true => outln!("{}", plan_as_json(&plan)),
        false => say(&plan),
    }
    Ok(())
}

fn say(plan: &Plan) {
    let people = size::for_people;
    outln!(
        "{:>11}  blobs were looked at, as they were pushed: {}",
        people(plan.looked_at.bytes),
        plan.looked_at.blobs
    );
    for (place, change) in &plan.places {
        if change.made > 0 {
            outln!(
                "{:>11}  come to {place}: {} copies, or shards of copies",
                people(change.made_bytes),
                change.made
            );
        }
        if change.dropped > 0 {
            outln!(
                "{:>11}  go from {place}: {}",
                people(change.dropped_bytes),
                change.dropped
            );
        }
    }
    let blobs = |planned: &Planned, what: &str| {
        if planned.blobs > 0 {
            outln!(
                "{:>11}  of blobs {what}: {}",
                people(planned.bytes),
                planned.blobs
            );
        }
    };
    blobs(
        &plan.taken_apart,
        "are taken apart, and their packs and recipes go where the rules say",
    );
    blobs(&plan.made_intact, "are made intact again");
    blobs(
        &plan.dropped_intact,
        "are kept by their recipes alone from then on",
    );
    for (places, planned) in &plan.survives {
        let what = match places {
            0 => "are lost if one place is lost".to_owned(),
            1 => "stay if one place is lost, whichever it is".to_owned(),
            _ => format!("stay if {places} places are lost, whichever they are"),
        };
        blobs(planned, &what);
    }
    match (plan.is_nothing(), plan.time()) {
        (true, _) => outln!("nothing changes"),
        (false, Duration::ZERO) => outln!("that takes a few seconds"),
        (false, time) => outln!("about {} with one processor and local disks", Period(time)),
    }
}

fn plan_as_json(plan: &Plan) -> Value {
    let planned = |planned: &Planned| json!({"blobs": planned.blobs, "bytes": planned.bytes});
    let places = plan.places.iter().map(|(place, change)| {
        json!({
            "place": place.to_string(),
            "made": change.made,
            "made_bytes": change.made_bytes,
            "dropped": change.dropped,
            "dropped_bytes": change.dropped_bytes,
        })
    });
    let survives = plan
        .survives
        .iter()
        .map(|(places, blobs)| json!({"places": places, "blobs": blobs.blobs, "bytes": blobs.bytes}));
    json!({
        "looked_at": planned(&plan.looked_at),
        "places": places.collect::<Vec<_>>(),
        "taken_apart": planned(&plan.taken_apart),
        "made_intact": planned(&plan.made_intact),
        "dropped_intact": planned(&plan.dropped_intact),
        "survives_loss_of": survives.collect::<Vec<_>>(),
        "seconds": plan.time().as_secs(),
    })
}

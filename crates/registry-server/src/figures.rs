//! Figures for Prometheus that others count or keep, read at each scrape: of upstreams, quotas, logins, webhooks and the store. A scrape
//! waits for none of them: sums over the store are those of some minutes ago ([`Store::sums`], [`Store::last_space`]). Labels are names of the configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry as Figures, Unit};
use xebec_dedup::Figures as Restoring;
use xebec_events::Reports;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_policy::quota::Quotas;
use xebec_store::{PlaceSpace, Space, Store};
use xebec_upstream::Upstreams;

use crate::state::Registry;

type Labels = Vec<(&'static str, String)>;

/// Adds all that the registry's parts know.
pub(crate) fn add(to: &mut Figures, registry: &Registry) {
    of_upstreams(to, &registry.upstreams);
    of_reports(to, &registry.reports);
    of_store(to, &registry.store);
    of_space(to, &registry.store);
    of_database(to, &registry.store);
    if let Some(restorer) = &registry.restorer {
        of_restoring(to, &restorer.figures());
    }
    of_quotas(to, &registry.quotas);
    let logins = registry.guard.logins().into_iter().flatten();
    let logins = counters(logins.map(|(outcome, count)| (vec![of_outcome(outcome)], count)));
    to.register("logins", "Passwords by how they turned out", logins);
}

fn of_outcome(outcome: &'static str) -> (&'static str, String) {
    ("outcome", outcome.to_owned())
}

fn counters(values: impl IntoIterator<Item = (Labels, u64)>) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (label, value) in values {
        family.get_or_create(&label).inc_by(value);
    }
    family
}

fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

fn of_upstreams(to: &mut Figures, upstreams: &Upstreams) {
    let asked = upstreams.all().flat_map(|(prefix, upstream)| {
        let labels = |outcome| vec![("upstream", prefix.to_owned()), of_outcome(outcome)];
        let outcomes = upstream.counts().outcomes();
        outcomes.map(|(outcome, count)| (labels(outcome), count))
    });
    let help = "Requests to upstreams by what they came to";
    to.register("upstream_requests", help, counters(asked));
    let label = |prefix: &str| vec![("upstream", prefix.to_owned())];
    let hits = upstreams.all();
    let hits = counters(hits.map(|(prefix, upstream)| (label(prefix), upstream.counts().hits())));
    let help = "Manifests and blobs that were answered from the store, without a question to their upstream";
    to.register("upstream_hits", help, hits);
    let received = upstreams.all();
    let received = counters(received.map(|(prefix, upstream)| (label(prefix), upstream.counts().received())));
    let help = "Bytes of blobs that came from upstreams";
    to.register_with_unit("upstream_received", help, Unit::Bytes, received);
    let alone = Family::<Labels, Gauge>::default();
    for (prefix, upstream) in upstreams.all() {
        alone
            .get_or_create(&label(prefix))
            .set(upstream.is_left_alone().into());
    }
    let help = "Whether an upstream is not asked now, since it is away or limits requests";
    to.register("upstream_left_alone", help, alone);
}

fn of_quotas(to: &mut Figures, quotas: &Quotas) {
    let (used, limits) = (
        Family::<Labels, Gauge>::default(),
        Family::<Labels, Gauge>::default(),
    );
    for (quota, bytes) in quotas.used() {
        let label = vec![("prefix", quota.prefix.clone())];
        let set = |of: &Family<Labels, Gauge>, value| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            of.get_or_create(&label).set(value);
        };
        set(&used, bytes);
        set(&limits, quota.limit);
    }
    let help = "Bytes that are used of a quota";
    to.register_with_unit("quota_used", help, Unit::Bytes, used);
    to.register_with_unit("quota_limit", "Limits of quotas", Unit::Bytes, limits);
}

fn of_database(to: &mut Figures, store: &Store) {
    let transactions = store.transactions();
    let outcomes = transactions.iter().flat_map(|(kind, transactions)| {
        let labels = |outcome| vec![("kind", (*kind).to_owned()), of_outcome(outcome)];
        [
            (labels("done"), transactions.done),
            (labels("failed"), transactions.failed),
        ]
    });
    let help = "Transactions of the database";
    to.register("database_transactions", help, counters(outcomes));
    let times = Family::<Labels, Counter<f64, AtomicU64>>::default();
    for (kind, transactions) in &transactions {
        let label = vec![("kind", (*kind).to_owned())];
        times
            .get_or_create(&label)
            .inc_by(transactions.time.as_secs_f64());
    }
    let help = "How long transactions of the database took together, with waiting for it";
    to.register_with_unit("database", help, Unit::Seconds, times);
}

fn of_reports(to: &mut Figures, reports: &Reports) {
    let receivers = reports.webhooks.iter().flat_map(|webhooks| webhooks.counters());
    let events = receivers.flat_map(|(receiver, counters)| {
        [
            ("delivered", &counters.delivered),
            ("dropped", &counters.dropped),
            ("failed_tries", &counters.failed),
        ]
        .map(|(outcome, counter)| {
            let labels = vec![("receiver", receiver.to_owned()), of_outcome(outcome)];
            (labels, counter.load(Ordering::Relaxed))
        })
    });
    to.register(
        "webhook_events",
        "Events of webhooks that were delivered or dropped, and requests that failed",
        counters(events),
    );
    let waiting = reports.webhooks.iter().flat_map(|webhooks| webhooks.counters());
    let waiting = waiting
        .map(|(_, counters)| counters.waiting.load(Ordering::Relaxed))
        .sum();
    to.register(
        "webhook_events_waiting",
        "Events of webhooks that wait",
        gauge(waiting),
    );
    let lost = Counter::<u64>::default();
    lost.inc_by(reports.audit.as_ref().map_or(0, |audit| audit.lost_in_all()));
    to.register(
        "audit_lines_lost",
        "Lines of the audit log that could not be written",
        lost,
    );
}

fn of_store(to: &mut Figures, store: &Store) {
    if let Some(waiting) = store.waiting() {
        to.register(
            "indexing_waiting",
            "Manifests that wait to be indexed",
            gauge(waiting.manifests),
        );
        let help = "Manifests that could not be indexed, or not wholly";
        to.register("indexing_failed", help, gauge(waiting.failed));
        let age = match waiting.since {
            0 => 0,
            since => milliseconds_since_1970().saturating_sub(since) / 1000,
        };
        let help = "How long the first that waits to be indexed has been here";
        to.register_with_unit("indexing_oldest", help, Unit::Seconds, gauge(age));
    }
    let Some(sums) = store.sums() else {
        return;
    };
    for (name, help, value) in [
        ("stored_blobs", "Blobs in the store", sums.blobs),
        (
            "stored_manifests",
            "Manifests of all repositories",
            sums.manifests,
        ),
        (
            "uploads_unfinished",
            "Uploads that nobody has finished",
            sums.uploads,
        ),
        (
            "damaged_blobs",
            "Blobs that a scrub found damaged or missing",
            sums.damaged,
        ),
    ] {
        to.register(name, help, gauge(value));
    }
    for (name, help, value) in [
        ("stored_blobs", "Bytes of blobs in the store", sums.blob_bytes),
        ("stored_manifests", "Bytes of manifests", sums.manifest_bytes),
        (
            "uploads_unfinished",
            "Bytes of uploads that nobody has finished",
            sums.upload_bytes,
        ),
    ] {
        to.register_with_unit(name, help, Unit::Bytes, gauge(value));
    }
    let help = "When the blob was scrubbed that was so longest ago, since 1970; 0 if one never was";
    to.register_with_unit("scrubbed_last", help, Unit::Seconds, gauge(sums.scrubbed / 1000));
}

/// The room that blobs take up, and what of it deduplication saves.
fn of_space(to: &mut Figures, store: &Store) {
    let Some(space) = store.last_space() else {
        return;
    };
    of_places(to, &space);
    let stored = Family::<Labels, Gauge>::default();
    for (kind, bytes) in [
        ("intact", space.intact_bytes),
        ("packs", space.pack_bytes),
        ("recipes", space.recipe_bytes),
    ] {
        let label = vec![("kind", kind.to_owned())];
        stored
            .get_or_create(&label)
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    let help = "Bytes that are stored for blobs, by what they are stored as";
    to.register_with_unit("deduplication_stored", help, Unit::Bytes, stored);
    for (name, help, value) in [
        (
            "deduplication_pushed",
            "Bytes of blobs, as they were pushed",
            space.blob_bytes,
        ),
        (
            "deduplication_chunks_plain",
            "Bytes of chunks without compression",
            space.chunk_bytes,
        ),
        (
            "deduplication_recipes_plain",
            "Bytes of blobs with a recipe, without compression",
            space.plain_bytes,
        ),
    ] {
        to.register_with_unit(name, help, Unit::Bytes, gauge(value));
    }
    for (name, help, value) in [
        (
            "deduplication_chunks",
            "Files and parts of files in packs, each of which is there once",
            space.chunks,
        ),
        ("deduplication_recipes", "Blobs with a recipe", space.recipes),
        (
            "deduplication_waiting",
            "Blobs that wait to be taken apart, or would if that were enabled",
            space.waiting,
        ),
        (
            "deduplication_kept",
            "Blobs that could not be taken apart",
            space.kept_blobs,
        ),
    ] {
        to.register(name, help, gauge(value));
    }
}

/// The copies that other places than the main one have.
fn of_places(to: &mut Figures, space: &Space) {
    let label = |place: &PlaceSpace| vec![("place", place.place.to_string())];
    let of = |value: fn(&PlaceSpace) -> u64| {
        let family = Family::<Labels, Gauge>::default();
        for place in &space.places {
            let value = i64::try_from(value(place)).unwrap_or(i64::MAX);
            family.get_or_create(&label(place)).set(value);
        }
        family
    };
    let help = "Copies, or shards of copies, on a place";
    to.register("place_copies", help, of(|place| place.replicas));
    let help = "Bytes of copies on a place";
    to.register_with_unit("place_copies", help, Unit::Bytes, of(|place| place.bytes));
    let help = "Copies on a place that are damaged or gone, and not made again yet";
    to.register("place_damaged", help, of(|place| place.damaged));
    let help = "Blobs, packs and links to blobs whose copies are still to be looked at";
    to.register("copies_waiting", help, gauge(space.unplaced));
}

/// How often what restoring needs was there.
fn of_restoring(to: &mut Figures, figures: &Restoring) {
    let kinds = [
        ("recipe", figures.recipes),
        ("frame", figures.frames),
        ("part", figures.units),
        ("ahead", figures.blobs),
    ];
    let outcomes = kinds.into_iter().flat_map(|(kind, hits)| {
        let labels = |outcome| vec![("kind", kind.to_owned()), of_outcome(outcome)];
        [
            (labels("hit"), hits.hit),
            (labels("waited"), hits.waited),
            (labels("missed"), hits.missed),
        ]
    });
    let help = "Recipes, frames of packs, restored parts and blobs restored ahead: how often one was there when it was needed";
    to.register("restored", help, counters(outcomes));
    let help = "Bytes of the files of blobs that were restored ahead";
    to.register_with_unit("restored_ahead", help, Unit::Bytes, gauge(figures.file_bytes));
}

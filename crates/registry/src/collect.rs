//! `xebec-registry gc`.
//!
//! A dry run of the collection counts what nothing refers to now, not what will be so once the rules have let something go.

use anyhow::{Context as _, ensure};
use xebec_events::Listener as _;
use xebec_events::audit::Audit;
use xebec_events::{Gone, Thing};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_kernel::size;
use xebec_registry_server::config::LogFormat;
use xebec_registry_server::upkeep::Upkeep;
use xebec_store::{CollectOptions, Collected, Store};

use crate::args::Collect;
use crate::logging;

/// Collects once, or says what would be collected. Nothing goes before there is a place to write down that it went; a dry run needs none.
pub(crate) fn collect(args: &Collect, verbose: u8) -> anyhow::Result<()> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    crate::program::carry_out(async {
        let store = Store::open(&config.store).await?;
        let audit = config.audit.as_ref().filter(|_| !args.dry_run);
        let audit = audit.map(Audit::open).transpose();
        let audit = audit.context("nothing was deleted")?;
        let mut report_gone = |gone: &Gone| {
            say(gone, args.dry_run);
            if let Some(audit) = &audit {
                audit.let_go(gone);
            }
        };
        let upkeep = Upkeep::new(&store, &config);
        let tidied = upkeep
            .run(args.dry_run, milliseconds_since_1970(), &mut report_gone)
            .await;
        let lost = audit.map_or(0, Audit::finish);
        tidied?;
        let options = CollectOptions {
            dry_run: args.dry_run,
        };
        let collected = store.collect(&options).await?;
        report(&collected, args.dry_run);
        ensure!(
            lost == 0,
            "the audit log lacks {lost} of what is said above to be gone; it could not be written"
        );
        Ok(())
    })
}

/// Says which thing goes, or would go, and why.
fn say(gone: &Gone, dry_run: bool) {
    let Gone {
        repository,
        what,
        digest,
        why,
    } = gone;
    let verb = if dry_run { "would go" } else { "is gone" };
    match what {
        Thing::Tag(tag) => outln!("{repository}:{tag} ({digest}) {verb}: {why}"),
        Thing::Manifest => outln!("{repository}@{digest} {verb}: {why}"),
        Thing::Copy { tags, manifests } => {
            let name = match tags.as_slice() {
                [] => format!("{repository}@{digest}"),
                tags => format!("{repository}:{}", tags.join(",")),
            };
            outln!("{name} with {manifests} manifests {verb}: {why}");
        }
    }
}

/// Reports the effects of a collection, or those that it would have, a line for each kind of thing.
fn report(collected: &Collected, dry_run: bool) {
    let verb = if dry_run { "would be " } else { "" };
    let lines = [
        (
            "uploads that nobody continued",
            collected.uploads,
            Some(collected.upload_bytes),
            "given up",
        ),
        (
            "blobs that no manifest of their repository names",
            collected.unlinked,
            None,
            "taken from it",
        ),
        (
            "blobs that no repository has",
            collected.condemned,
            Some(collected.condemned_bytes),
            "condemned",
        ),
        (
            "blobs that were condemned before",
            collected.deleted,
            Some(collected.deleted_bytes),
            "deleted",
        ),
        (
            "packs that no blob needs",
            collected.packs,
            Some(collected.pack_bytes),
            "deleted",
        ),
        (
            "packs and recipes that nobody finished",
            collected.drafts,
            Some(collected.draft_bytes),
            "given up",
        ),
        (
            "objects in the store",
            collected.objects,
            Some(collected.object_bytes),
            "deleted",
        ),
        ("empty repositories", collected.repositories, None, "forgotten"),
    ];
    for (what, count, bytes, done) in lines {
        match bytes {
            Some(bytes) => outln!("{count:>10}  {what} {verb}{done}: {}", size::for_people(bytes)),
            None => outln!("{count:>10}  {what} {verb}{done}"),
        }
    }
    if collected.failed > 0 {
        outln!(
            "{:>10}  objects could not be deleted; the next collection tries again",
            collected.failed
        );
    }
}

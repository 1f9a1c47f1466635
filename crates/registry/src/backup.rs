//! `xebec-registry backup` and `restore`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use xebec_kernel::size;
use xebec_registry_server::config::LogFormat;
use xebec_registry_server::deduplication;
use xebec_store::{
    BackedUp, Damage, DatabaseConfig, LeftOut, NamedBy, ObjectsConfig, Restored, Store, StoreError,
};

use crate::args::{Backup, Restore};
use crate::logging;
use crate::progress::Progress;

/// Takes a backup.
pub(crate) fn backup(args: &Backup, verbose: u8) -> anyhow::Result<ExitCode> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    crate::program::carry_out(async {
        let store = deduplication::open(&config.store, &config.deduplication).await?;
        let all = store.usage("").await?.blobs;
        let mut progress = Progress::new();
        let report = |so_far: &BackedUp| {
            let bytes = size::for_people(so_far.bytes);
            progress.say(format_args!(
                "backing up: {} of about {all} blobs, {bytes}",
                so_far.blobs
            ));
        };
        let backed_up = store.backup(&args.directory, report).await?;
        drop(progress);
        say_backed_up(args, &backed_up);
        Ok(match (backed_up.missing, backed_up.away) {
            (0, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(crate::program::AWAY),
            _ => ExitCode::from(crate::program::DAMAGED),
        })
    })
}

fn say_backed_up(args: &Backup, backed_up: &BackedUp) {
    let BackedUp {
        blobs,
        pieces,
        bytes,
        kept,
        copied,
        damaged,
        missing,
        away,
        lacks,
    } = backed_up;
    if args.json {
        let lacks: Vec<Value> = lacks
            .iter()
            .map(|lacking| {
                json!({"what": lacking.what, "digest": lacking.digest.to_string(), "away": lacking.away})
            })
            .collect();
        let report = json!({
            "blobs": blobs, "packs_and_recipes": pieces, "bytes": bytes, "kept": kept, "copied": copied, "damaged": damaged,
            "missing": missing, "away": away, "lacks": lacks,
        });
        outln!("{report}");
        return;
    }
    let linked = (blobs + pieces).saturating_sub(*kept).saturating_sub(*copied);
    outln!(
        "{}: {blobs} blobs{}, {}; {copied} were copied, {linked} linked, {kept} were there already",
        args.directory.display(),
        and_pieces(*pieces),
        size::for_people(*bytes)
    );
    if *damaged > 0 {
        outln!(
            "{damaged} copies had wrong bytes or were gone, and were passed over; they are noted, and made again from others"
        );
    }
    say_lacking(args, backed_up);
}

fn say_lacking(args: &Backup, backed_up: &BackedUp) {
    let BackedUp {
        missing, away, lacks, ..
    } = backed_up;
    let all = missing + away;
    if all == 0 {
        return;
    }
    for lacking in lacks {
        outln!("{lacking}");
    }
    outln!(
        "the backup is incomplete: it lacks {all} blobs, packs or recipes; {} names all",
        args.directory.join("incomplete").display()
    );
    if *away > 0 {
        outln!(
            "{away} of them are on places that cannot be read now: see to these, and take the backup again in the same directory"
        );
    }
    if *missing > 0 {
        outln!(
            "{missing} of them have no copy with right bytes; `xebec-registry scrub` names the blobs, and says how to mend them"
        );
    }
}

/// The words for packs and recipes, if there are any.
fn and_pieces(pieces: u64) -> String {
    match pieces {
        0 => String::new(),
        pieces => format!(" and {pieces} packs and recipes"),
    }
}

/// Restores a backup.
pub(crate) fn restore(args: &Restore, verbose: u8) -> anyhow::Result<ExitCode> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    if config.store.database != DatabaseConfig::Embedded || config.store.objects != ObjectsConfig::Directory {
        bail!(
            "a backup has embedded records and objects in files, and the configuration names others; use pg_restore, and the bucket's own \
             versions or copies"
        );
    }
    let root = config.store.root;
    let lacking = Store::lacking_in_backup(&args.backup)?;
    crate::program::carry_out(async {
        let mut progress = Progress::new();
        let report = |so_far: &Restored| {
            let bytes = size::for_people(so_far.bytes);
            progress.say(format_args!("restoring: {} blobs, {bytes}", so_far.blobs));
        };
        let restored = match args.without_damaged {
            true => Store::restore_without_damaged(&root, &args.backup, report).await,
            false => Store::restore(&root, &args.backup, report)
                .await
                .map(|restored| (restored, Vec::new())),
        };
        drop(progress);
        say_incomplete(args, lacking);
        match restored {
            Ok((restored, left_out)) => {
                say_restored(args, &root, &restored, &left_out, lacking);
                Ok(match left_out.is_empty() {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::from(crate::program::DAMAGED),
                })
            }
            Err(StoreError::BadBackup { damaged }) => {
                let damaged: Vec<String> = damaged.iter().map(ToString::to_string).collect();
                match args.json {
                    true => outln!(
                        "{}",
                        json!({"restored": false, "damaged": damaged, "lacking_in_backup": lacking})
                    ),
                    false => say_damaged(args, &damaged),
                }
                Ok(ExitCode::from(crate::program::DAMAGED))
            }
            Err(error) => Err(error.into()),
        }
    })
}

fn say_incomplete(args: &Restore, lacking: u64) {
    if lacking > 0 && !args.json {
        outln!(
            "{} is an incomplete backup: {lacking} blobs, packs or recipes could not be read when it was taken; {} names them",
            args.backup.display(),
            args.backup.join("incomplete").display()
        );
    }
}

fn say_restored(
    args: &Restore,
    root: &std::path::Path,
    restored: &Restored,
    left_out: &[LeftOut],
    lacking: u64,
) {
    let Restored {
        repositories,
        manifests,
        blobs,
        pieces,
        bytes,
    } = *restored;
    if args.json {
        let damaged: Vec<String> = left_out.iter().map(|left| left.digest.to_string()).collect();
        let report = json!({
            "restored": true, "damaged": damaged,
            "left_out": left_out.iter().map(as_json).collect::<Vec<_>>(),
            "repositories": repositories, "manifests": manifests, "blobs": blobs, "packs_and_recipes": pieces,
            "bytes": bytes, "lacking_in_backup": lacking,
        });
        outln!("{report}");
        return;
    }
    for left in left_out {
        outln!("{}  {}; {}", left.digest, state(&left.damage), advice(left));
    }
    outln!(
        "{}: {repositories} repositories, {manifests} manifests, {blobs} blobs{}, {}; all of them have their digests{}",
        root.display(),
        and_pieces(pieces),
        size::for_people(bytes),
        match left_out.len() {
            0 => String::new(),
            more => format!(
                ", and {more} more are damaged; `xebec-registry scrub` names those again, and fetches what upstreams have"
            ),
        }
    );
}

fn state(damage: &Damage) -> String {
    match damage {
        Damage::Missing => "is missing in the backup".to_owned(),
        Damage::WrongBytes => "has wrong bytes in the backup".to_owned(),
        Damage::Unreadable(why) => format!("cannot be read in the backup ({why})"),
        Damage::Recipe => {
            "is made of a recipe and packs, of which one is missing or wrong in the backup".to_owned()
        }
        Damage::Manifest => "is a manifest with other bytes than its digest says".to_owned(),
    }
}

/// The manifests that name it, and the next step, for people.
fn advice(left: &LeftOut) -> String {
    let is_manifest = left.damage == Damage::Manifest;
    // A manifest stands there itself, before the indexes that list it.
    let named_by = left.named_by.iter();
    let named_by = named_by.filter(|named| !is_manifest || named.manifest == left.digest);
    let names: Vec<String> = named_by.map(shown).collect();
    match (names.is_empty(), is_manifest) {
        (true, _) => "no manifest names it, and a collection takes it".to_owned(),
        (false, true) => format!("push it again: {}", names.join(", ")),
        (false, false) => format!(
            "it counts as absent until an image is pushed again that has it: {}",
            names.join(", ")
        ),
    }
}

/// A manifest with its tags, for people.
fn shown(named: &NamedBy) -> String {
    let tags: Vec<&str> = named.tags.iter().map(xebec_store::Tag::as_str).collect();
    match tags.is_empty() {
        true => format!("{}@{}", named.repository, named.manifest),
        false => format!("{}@{} ({})", named.repository, named.manifest, tags.join(", ")),
    }
}

fn as_json(left: &LeftOut) -> Value {
    let named_by: Vec<Value> = left
        .named_by
        .iter()
        .map(|named| {
            json!({
                "repository": named.repository.as_str(),
                "manifest": named.manifest.to_string(),
                "tags": named.tags.iter().map(xebec_store::Tag::as_str).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "digest": left.digest.to_string(),
        "manifest": left.damage == Damage::Manifest,
        "reason": state(&left.damage),
        "named_by": named_by,
    })
}

fn say_damaged(args: &Restore, damaged: &[String]) {
    for digest in damaged {
        outln!("{digest}  is missing in the backup, or has wrong bytes there");
    }
    outln!(
        "{} is not whole, and nothing was restored; take another backup, copy these objects there from an earlier one, or restore the rest \
         with --without-damaged",
        args.backup.display()
    );
}

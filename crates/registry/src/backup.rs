//! `xebec-registry backup` and `restore`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;
use xebec_kernel::size;
use xebec_registry::config::LogFormat;
use xebec_store::{BackedUp, DatabaseConfig, ObjectsConfig, Restored, Store, StoreError};

use crate::args::{Backup, Restore};
use crate::logging;
use crate::progress::Progress;

/// Takes a backup.
pub(crate) fn backup(args: &Backup, verbose: u8) -> anyhow::Result<ExitCode> {
    let config = crate::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    crate::runtime()?.block_on(async {
        let store = Store::open(&config.store).await?;
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
        Ok(match backed_up.missing {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(crate::DAMAGED),
        })
    })
}

fn say_backed_up(args: &Backup, backed_up: &BackedUp) {
    let BackedUp {
        blobs,
        bytes,
        kept,
        copied,
        missing,
    } = *backed_up;
    if args.json {
        let report =
            json!({"blobs": blobs, "bytes": bytes, "kept": kept, "copied": copied, "missing": missing});
        outln!("{report}");
        return;
    }
    let linked = blobs.saturating_sub(kept).saturating_sub(copied);
    outln!(
        "{}: {blobs} blobs, {}; {copied} were copied, {linked} linked, {kept} were there already",
        args.directory.display(),
        size::for_people(bytes)
    );
    if missing > 0 {
        outln!(
            "{missing} blobs are missing in the store itself; `xebec-registry scrub` names them, and says how to mend them"
        );
    }
}

/// Restores a backup.
pub(crate) fn restore(args: &Restore, verbose: u8) -> anyhow::Result<ExitCode> {
    let config = crate::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    if config.store.database != DatabaseConfig::Embedded || config.store.objects != ObjectsConfig::Directory {
        bail!(
            "a backup has embedded records and objects in files, and the configuration names others; use pg_restore, and the bucket's own \
             versions or copies"
        );
    }
    let root = config.store.root;
    crate::runtime()?.block_on(async {
        let mut progress = Progress::new();
        let report = |so_far: &Restored| {
            let bytes = size::for_people(so_far.bytes);
            progress.say(format_args!("restoring: {} blobs, {bytes}", so_far.blobs));
        };
        let restored = Store::restore(&root, &args.backup, report).await;
        drop(progress);
        match restored {
            Ok(restored) => {
                say_restored(args, &root, &restored);
                Ok(ExitCode::SUCCESS)
            }
            Err(StoreError::BadBackup { damaged }) => {
                let damaged: Vec<String> = damaged.iter().map(ToString::to_string).collect();
                match args.json {
                    true => outln!("{}", json!({"restored": false, "damaged": damaged})),
                    false => say_damaged(args, &damaged),
                }
                Ok(ExitCode::from(crate::DAMAGED))
            }
            Err(error) => Err(error.into()),
        }
    })
}

fn say_restored(args: &Restore, root: &std::path::Path, restored: &Restored) {
    let Restored {
        repositories,
        manifests,
        blobs,
        bytes,
    } = *restored;
    match args.json {
        true => {
            let report = json!({
                "restored": true, "damaged": [],
                "repositories": repositories, "manifests": manifests, "blobs": blobs, "bytes": bytes,
            });
            outln!("{report}");
        }
        false => outln!(
            "{}: {repositories} repositories, {manifests} manifests, {blobs} blobs, {}; all of them have their digests",
            root.display(),
            size::for_people(bytes)
        ),
    }
}

fn say_damaged(args: &Restore, damaged: &[String]) {
    for digest in damaged {
        outln!("{digest}  is missing in the backup, or has wrong bytes there");
    }
    outln!(
        "{} is not whole, and nothing was restored; take another backup, or copy these objects there from an earlier one",
        args.backup.display()
    );
}

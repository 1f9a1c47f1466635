//! `xebec-registry import`.

use std::io::IsTerminal as _;
use std::sync::Arc;

use xebec_registry_server::config::LogFormat;
use xebec_registry_server::deduplication;
use xebec_store::Store;
use xebec_transfer::{ImportOptions, Taking, Tally, import as take_over};

use crate::args::Import;
use crate::moved;
use crate::{logging, mirror};

/// Imports a directory, and says what came of it.
pub(crate) fn import(args: &Import, verbose: u8) -> anyhow::Result<()> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    let options = ImportOptions {
        taking: match (args.hard_link, args.move_files) {
            (_, true) => Taking::Move,
            (true, false) => Taking::HardLink,
            (false, false) => Taking::Copy,
        },
        repositories: args.repositories.clone(),
        rules: mirror::rules(&config),
        dry_run: args.dry_run,
    };
    crate::program::carry_out(async {
        let store = deduplication::open(&config.store, &config.deduplication).await?;
        let tally = Arc::new(Tally::default());
        if std::io::stderr().is_terminal() && !args.dry_run {
            expect(&store, args, &options, &tally).await?;
        }
        let done = moved::watch(&tally, take_over(&store, &args.directory, &options, &tally)).await;
        moved::report(&tally, args.json, args.dry_run);
        done?;
        moved::verdict(&tally)
    })
}

/// Counts beforehand, so that progress has an end.
async fn expect(store: &Store, args: &Import, options: &ImportOptions, tally: &Tally) -> anyhow::Result<()> {
    let options = ImportOptions {
        dry_run: true,
        ..options.clone()
    };
    // Problems are reported when the import itself meets them again.
    let counted = Arc::new(Tally::default());
    take_over(store, &args.directory, &options, &counted).await?;
    let counted = counted.read(usize::MAX);
    tally.expect(counted.manifests + counted.manifests_here, counted.bytes);
    Ok(())
}

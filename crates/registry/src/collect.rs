//! `xebec-registry gc`.

use anyhow::Context as _;
use xebec_registry::config::LogFormat;
use xebec_store::{CollectOptions, Store};

use crate::args::Collect;
use crate::logging;

/// Collects once, or says what would be collected.
pub(crate) fn collect(args: &Collect, verbose: u8) -> anyhow::Result<()> {
    let config = crate::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the program's threads")?;
    runtime.block_on(async {
        let store = Store::open(&config.store).await?;
        let options = CollectOptions {
            dry_run: args.dry_run,
            ..CollectOptions::default()
        };
        let collected = store.collect(&options).await?;
        outln!("{collected:#?}");
        Ok(())
    })
}

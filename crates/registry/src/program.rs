//! What all commands need: threads, and the configuration.

use std::time::Duration;

use anyhow::Context as _;
use xebec_registry_server::config::{Config, ConfigError};

use crate::args::Place;

/// Of a command that has found something damaged or missing in what is kept.
pub(crate) const DAMAGED: u8 = 3;
/// Of a command that lacks something only since a place is away: try again later.
pub(crate) const AWAY: u8 = 4;

/// What a command does in the background has so long when the command has ended. All of it is finished by then, or harmless.
const LAST: Duration = Duration::from_secs(5);

/// Carries out what a command does, on the program's threads.
pub(crate) fn carry_out<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    carry_out_within(LAST, command)
}

/// The same. What it has begun in the background has until `last` after its end: a thread that hangs with a disk of another host keeps nobody waiting.
pub(crate) fn carry_out_within<T>(
    last: Duration,
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.context("cannot start the program's threads")?;
    let done = runtime.block_on(command);
    // To drop it would wait for all threads.
    runtime.shutdown_timeout(last);
    done
}

/// The configuration, with what the command line says instead.
pub(crate) fn configured(place: &Place) -> Result<Config, ConfigError> {
    let mut config = match &place.config {
        Some(file) => Config::read(file)?,
        None => Config::usual(),
    };
    if let Some(root) = &place.root {
        config.store.root.clone_from(root);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A thread stands for one that hangs in a directory of another host: it ends when the test does.
    #[test]
    fn a_thread_that_hangs_keeps_no_command_from_its_end() {
        let (ends, end) = channel::<()>();
        let (tells, told) = channel();
        std::thread::spawn(move || {
            let code = carry_out_within(Duration::ZERO, async {
                let (hangs, hung) = tokio::sync::oneshot::channel();
                tokio::task::spawn_blocking(move || {
                    let _ = hangs.send(());
                    end.recv()
                });
                hung.await.unwrap();
                Ok(7)
            });
            tells.send(code.unwrap())
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(7));
        drop(ends);
    }
}

//! The places for copies: whether each is there, has its mark and room, and takes in what the store writes.

use std::io;
use std::path::Path;
use std::time::Duration;

use xebec_kernel::size;
use xebec_registry_server::config::Config;
use xebec_store::{DatabaseConfig, PlaceConfig, Store, StoreError};

use rustix::fs::{Access, access, statvfs};

use super::found::Found;

/// With less, copies may fail soon.
const WANTED: u64 = 2 << 30;

/// All places, at the same time. One that does not answer within `patience` is said to hang; a thread may hang with it.
pub(super) async fn places(config: &Config, patience: Duration) -> Vec<Found> {
    if config.store.places.is_empty() {
        return Vec::new();
    }
    let is_new =
        config.store.database == DatabaseConfig::Embedded && !config.store.root.join("records.db").exists();
    let store = match is_new {
        true => None,
        // What is wrong with the store has its own line.
        false => match Store::open(&config.store).await {
            Ok(store) => Some(store),
            Err(_) => return Vec::new(),
        },
    };
    let tasks: Vec<_> = config
        .store
        .places
        .iter()
        .map(|place| {
            let (store, place) = (store.clone(), place.clone());
            tokio::spawn(async move { examine(store, &place, patience).await })
        })
        .collect();
    let mut found = Vec::new();
    for task in tasks {
        found.extend(task.await.unwrap_or_default());
    }
    found
}

async fn examine(store: Option<Store>, place: &PlaceConfig, patience: Duration) -> Vec<Found> {
    let what = format!("place {}", place.name);
    let tried = tokio::time::timeout(patience, try_it(store, place)).await;
    let hangs = || {
        let said = format!(
            "it does not answer within {} s; see to its disk, its host or its bucket. Meanwhile pulls are answered from other places, and copies \
             wait",
            patience.as_secs()
        );
        vec![Found::broken(what.clone(), said)]
    };
    let used = match tried {
        Err(_) => return hangs(),
        Ok(Err(cause)) => return vec![Found::broken(what, cause)],
        Ok(Ok(is_used)) => is_used,
    };
    let said = match used {
        true => Found::well(
            what.clone(),
            "it has its mark, and takes in, gives back and deletes bytes",
        ),
        false => Found::note(
            what.clone(),
            "nothing has used it yet; `serve` takes it into use when a rule names it",
        ),
    };
    let Some(root) = place.root.clone() else {
        return vec![said];
    };
    let seen = tokio::task::spawn_blocking(move || statvfs(&root));
    match tokio::time::timeout(patience, seen).await {
        Err(_) => hangs(),
        Ok(Ok(Ok(stat))) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            vec![said, room(format!("room of {what}"), free)]
        }
        Ok(_) => vec![
            said,
            Found::broken(format!("room of {what}"), "it cannot be seen"),
        ],
    }
}

fn room(what: String, free: u64) -> Found {
    let said = format!("{} are free", size::for_people(free));
    match free < WANTED {
        true => Found::note(
            what,
            format!("{said}; give it more room before copies fail, or change its rules"),
        ),
        false => Found::well(what, said),
    }
}

/// Whether the store has used it; or what is wrong, and what to do.
async fn try_it(store: Option<Store>, place: &PlaceConfig) -> Result<bool, String> {
    if let Some(root) = place.root.clone() {
        let looked = tokio::task::spawn_blocking(move || look_at_directory(&root));
        looked.await.map_err(|error| error.to_string())??;
    }
    let Some(store) = store else {
        return Ok(false);
    };
    store.try_place(&place.name).await.map_err(|error| match error {
        StoreError::Place { source, .. } => source.to_string(),
        error => error.to_string(),
    })
}

fn look_at_directory(root: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(root).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{} is not there; mount or make it", root.display()),
        _ => format!("{}: {error}", root.display()),
    })?;
    if !metadata.is_dir() {
        return Err(format!("{} is no directory; name another one", root.display()));
    }
    access(root, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("{}: {error}; it must be writable for this user", root.display()))
}

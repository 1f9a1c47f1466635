//! This host's memory of registries: `<root>/registries.json`, for all programs of the installation and over restarts.
//!
//! It is small, seldom read and more seldom written. If it is lost or damaged a start asks a registry once more.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;
use xebec_oci::memory::{LACK_LASTS, NATIVE_LASTS, RegistryMemory};

use xebec_kernel::file::write_for_this_boot;

/// Registries that are remembered; a host has images of a few.
const MOST: usize = 1000;

/// Held by the task of this program that changes the file, so that none forgets what another learnt meanwhile.
static CHANGING: Mutex<()> = Mutex::new(());

/// The file.
#[derive(Debug)]
pub(crate) struct RememberedRegistries(PathBuf);

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Table {
    /// When it was seen that they have no referrers API, in seconds since 1970.
    no_referrers_api: BTreeMap<String, u64>,
    /// When it was seen that they answer starts in advance.
    native: BTreeMap<String, u64>,
}

impl RememberedRegistries {
    /// The memory in `file`, which need not exist.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self(file)
    }

    fn read(&self) -> Table {
        let bytes = fs::read(&self.0).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Notes in one of the lists that something is so of a server now, or is not. What is older than it lasts goes.
    fn put(
        &self,
        server: &str,
        is: bool,
        lasts: Duration,
        list: fn(&mut Table) -> &mut BTreeMap<String, u64>,
    ) {
        let _one = CHANGING.lock();
        let mut table = self.read();
        let now = xebec_kernel::clock::seconds_since_1970();
        let known = list(&mut table);
        known.retain(|_, seen| now.saturating_sub(*seen) < lasts.as_secs());
        match is {
            false => known.remove(server),
            true if known.len() < MOST || known.contains_key(server) => known.insert(server.to_owned(), now),
            true => return,
        };
        self.write(&table);
    }

    /// Another program may write at the same time; then one of the two facts is lost, and is seen again. Nor is it synced:
    /// a start waits for this.
    fn write(&self, table: &Table) {
        let written = serde_json::to_vec(table)
            .map_err(std::io::Error::from)
            .and_then(|bytes| write_for_this_boot(&self.0, &bytes));
        if let Err(error) = written {
            warn!("{}: {error}", self.0.display());
        }
    }
}

impl RegistryMemory for RememberedRegistries {
    fn lacked_referrers(&self, server: &str) -> Option<SystemTime> {
        time(*self.read().no_referrers_api.get(server)?)
    }

    fn saw_referrers(&self, server: &str, has: bool) {
        self.put(server, !has, LACK_LASTS, |table| &mut table.no_referrers_api);
    }

    fn seen_native(&self, server: &str) -> Option<SystemTime> {
        time(*self.read().native.get(server)?)
    }

    fn saw_native(&self, server: &str, is: bool) {
        self.put(server, is, NATIVE_LASTS, |table| &mut table.native);
    }
}

fn time(seen: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_know_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registries.json");
        let (one, other) = (
            RememberedRegistries::new(file.clone()),
            RememberedRegistries::new(file.clone()),
        );
        assert_eq!(one.lacked_referrers("a:5000"), None);
        one.saw_referrers("a:5000", false);
        one.saw_referrers("b", false);
        let ago = other.lacked_referrers("a:5000").unwrap().elapsed().unwrap();
        assert!(ago < LACK_LASTS);
        other.saw_referrers("a:5000", true);
        assert_eq!(one.lacked_referrers("a:5000"), None);
        assert!(one.lacked_referrers("b").is_some());

        one.saw_native("a:5000", true);
        assert!(other.seen_native("a:5000").is_some() && other.seen_native("b").is_none());
        assert!(one.lacked_referrers("b").is_some(), "both are in one file");
        other.saw_native("a:5000", false);
        assert_eq!(one.seen_native("a:5000"), None);

        // As an earlier version has written it.
        fs::write(&file, r#"{"no_referrers_api": {"old": 1000}}"#).unwrap();
        assert_eq!(one.seen_native("old"), None);
        assert!(
            one.lacked_referrers("old").is_some(),
            "the caller looks how old it is"
        );
        one.saw_referrers("new", false);
        assert_eq!(one.lacked_referrers("old"), None, "it is not kept for ever");

        fs::write(&file, "{").unwrap();
        assert_eq!(one.lacked_referrers("new"), None);
        one.saw_referrers("new", false);
        assert!(one.lacked_referrers("new").is_some(), "it is made anew");
    }

    #[test]
    fn a_full_memory_renews_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let memory = RememberedRegistries::new(dir.path().join("registries.json"));
        let hour_ago = xebec_kernel::clock::seconds_since_1970() - 3600;
        let seen = (0..MOST).map(|number| (format!("registry-{number}"), hour_ago));
        memory.write(&Table {
            native: seen.collect(),
            ..Table::default()
        });
        memory.saw_native("registry-0", true);
        memory.saw_native("another", true);
        let ago = |server: &str| Some(memory.seen_native(server)?.elapsed().unwrap());
        assert!(ago("registry-0").unwrap() < Duration::from_secs(3000));
        assert!(ago("registry-1").unwrap() >= Duration::from_secs(3600));
        assert_eq!(ago("another"), None);
    }

    #[test]
    fn what_many_learn_at_once_is_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registries.json");
        let servers: Vec<String> = (0..32).map(|number| format!("registry-{number}")).collect();
        std::thread::scope(|scope| {
            for server in &servers {
                let memory = RememberedRegistries::new(file.clone());
                scope.spawn(move || memory.saw_referrers(server, false));
            }
        });
        let memory = RememberedRegistries::new(file);
        let lost = servers
            .iter()
            .filter(|server| memory.lacked_referrers(server).is_none());
        assert_eq!(lost.count(), 0);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "and nothing is left over"
        );
    }
}

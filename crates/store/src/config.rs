//! The configuration with which a store is opened.

use std::path::PathBuf;
use std::time::Duration;

use xebec_database::DatabaseConfig;
use xebec_objects::ObjectsConfig;
use xebec_placement::PlaceName;

/// Where things are kept, and for how long.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The directory for the embedded database and for objects.
    pub root: PathBuf,
    /// Where records are kept.
    pub database: DatabaseConfig,
    /// Where objects are kept: the place `main`.
    pub objects: ObjectsConfig,
    /// Other places, where replicas of objects are.
    pub places: Vec<PlaceConfig>,
    /// A place that gives nothing for so long is away, where there are several: a disk of another host may hang for ever. Tests set less than 30 s.
    pub place_patience: Duration,
    /// An upload that nobody continues for so long is given up.
    pub upload_timeout: Duration,
    /// A blob that nothing refers to any more is condemned after this time, and deleted after this time once more. A client that was
    /// promised a blob has at least half of this time to push the manifest.
    pub grace: Duration,
    /// No manifest is larger than so many bytes.
    pub max_manifest: u64,
    /// No blob is larger than so many bytes.
    pub max_blob: u64,
    /// No repository has many more uploads under way (some hundreds of each node), those included that nobody continues until they are
    /// given up.
    pub max_uploads: u32,
    /// Clients read objects for so long by an address that they were given ([`Store::signed_address`](crate::Store::signed_address)): the object
    /// of a blob that was taken apart stays for this time.
    pub addresses_last: Duration,
    /// So many bytes of the root directory's disk stay free: with less, no blob and no manifest is taken.
    pub reserve: u64,
}

impl StoreConfig {
    /// With nothing but a directory: embedded database, objects in files, a day of grace, no addresses, no reserve.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            root: root.into(),
            database: DatabaseConfig::Embedded,
            objects: ObjectsConfig::Directory,
            places: Vec::new(),
            place_patience: Duration::from_secs(30),
            upload_timeout: 7 * DAY,
            grace: DAY,
            max_manifest: 4 << 20,
            max_blob: 1 << 40,
            max_uploads: 10_000,
            addresses_last: Duration::ZERO,
            reserve: 0,
        }
    }
}

/// A place beside the main one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceConfig {
    /// Its name, by which rules and records know it.
    pub name: PlaceName,
    /// The directory that the directory of objects is in, if objects are files there.
    pub root: Option<PathBuf>,
    /// Where objects are kept there.
    pub objects: ObjectsConfig,
}

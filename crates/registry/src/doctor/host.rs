//! Things that this host gives: directory, room, clock, addresses; database and objects.

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{Access, access, statvfs};
use xebec_kernel::size;
use xebec_registry_server::config::Config;
use xebec_store::{
    Algorithm, Blob, DatabaseConfig, Digest, ObjectsConfig, Protection, Store, StoreError,
    database_protection,
};

use super::found::Found;

/// With less, the next push may fail.
const NEEDED: u64 = 100 << 20;
/// With less, somebody should look for more.
const WANTED: u64 = 2 << 30;
/// When this program was made at the earliest.
const EARLIEST: Duration = Duration::from_secs(1_735_689_600);

/// Certificates and tokens are refused by a wrong clock.
pub(super) fn clock(root: &Path) -> Found {
    let now = SystemTime::now();
    let year = "set it, best by a time service (timedatectl set-ntp true)";
    if now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() < EARLIEST {
        return Found::broken("clock", format!("it is before 2025; {year}"));
    }
    let written = std::fs::metadata(root.join("records.db")).and_then(|records| records.modified());
    let ahead = written.ok().and_then(|written| written.duration_since(now).ok());
    match ahead.filter(|ahead| *ahead > Duration::from_secs(60)) {
        Some(ahead) => Found::broken(
            "clock",
            format!(
                "the records were written {} s later than it is now; {year}",
                ahead.as_secs()
            ),
        ),
        None => Found::well("clock", "it is later than what was written here"),
    }
}

/// The root directory and its file system.
pub(super) fn directory(root: &Path, reserve: u64) -> Vec<Found> {
    let what = format!("directory {}", root.display());
    let metadata = match std::fs::metadata(root) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return vec![missing(root, what)];
        }
        Err(error) => {
            return vec![Found::broken(
                what,
                format!("{error}; start as the user whose directory it is"),
            )];
        }
    };
    if !metadata.is_dir() {
        return vec![Found::broken(
            what,
            "it is no directory; name another one (storage.root)",
        )];
    }
    if let Err(error) = access(root, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        return vec![Found::broken(
            what,
            format!("{error}; it must be writable for this user"),
        )];
    }
    let mode = metadata.mode() & 0o777;
    let rights = match mode & 0o077 {
        0 => Found::well(what, "nobody but its user may enter it"),
        _ => Found::note(
            what,
            format!("others may enter it ({mode:o}); chmod 0700 {}", root.display()),
        ),
    };
    vec![rights, room(root, reserve)]
}

fn missing(root: &Path, what: String) -> Found {
    let parent = root.ancestors().skip(1).find(|parent| parent.exists());
    match parent.map(|parent| (parent, access(parent, Access::WRITE_OK | Access::EXEC_OK))) {
        Some((_, Ok(()))) => Found::note(what, "it is not there yet; `serve` makes it"),
        Some((parent, Err(error))) => Found::broken(
            what,
            format!(
                "it is not there, and cannot be made in {}: {error}; make it for this user",
                parent.display()
            ),
        ),
        None => Found::broken(what, "it is not there; name an absolute path (storage.root)"),
    }
}

fn room(root: &Path, reserve: u64) -> Found {
    let stat = match statvfs(root) {
        Ok(stat) => stat,
        Err(error) => return Found::broken("room", format!("cannot be seen: {error}")),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let said = format!("{} and {} files are free", size::for_people(free), stat.f_favail);
    // Some file systems count no files.
    let no_files = stat.f_files > 0 && stat.f_favail < 1000;
    match free {
        _ if free < NEEDED.max(reserve) || no_files => Found::broken(
            "room",
            format!(
                "{said}; pushes fail soon: give the disk more room, or let images go ([[retention]], keep of upstreams)"
            ),
        ),
        _ if free < WANTED.max(reserve.saturating_mul(2)) => Found::note(
            "room",
            format!("{said}; give the disk more room before pushes fail"),
        ),
        _ => Found::well("room", said),
    }
}

/// Database and objects.
pub(super) async fn store(config: &Config) -> Vec<Found> {
    let (database, embedded) = match &config.store.database {
        DatabaseConfig::Embedded => ("database records.db", true),
        DatabaseConfig::Postgres { .. } => ("database in PostgreSQL", false),
    };
    if embedded && !config.store.root.join("records.db").exists() {
        return vec![Found::note(database, "it is not there yet; `serve` makes it")];
    }
    let store = match Store::open(&config.store).await {
        Ok(store) => store,
        Err(error) => return vec![Found::broken(database, error.to_string())],
    };
    let usage = match store.usage("").await {
        Ok(usage) => usage,
        Err(error) => return vec![Found::broken(database, error.to_string())],
    };
    let said = format!(
        "it answers, with this program's schema; {} manifests and {} blobs, {}",
        usage.manifests,
        usage.blobs,
        size::for_people(usage.bytes)
    );
    let mut found = vec![Found::well(database, said)];
    found.extend(connections(config));
    found.push(objects(config, &store).await);
    found
}

/// Whether others can read what goes to the database and comes from it.
fn connections(config: &Config) -> Option<Found> {
    let what = "connections to PostgreSQL";
    Some(match database_protection(&config.store.database).ok()?? {
        Protection::Verified => Found::well(what, "they are encrypted, and its certificate is verified"),
        Protection::Local => Found::well(what, "they are plain, and stay on this host"),
        Protection::Plain => Found::note(
            what,
            "they are plain (tls = \"off\"), and go to another host: who can listen on the way reads all records, and can change them; \
             turn TLS on there, and write tls = \"verify\"",
        ),
    })
}

/// Asks the object store for what nobody can have put there.
async fn objects(config: &Config, store: &Store) -> Found {
    let what = match &config.store.objects {
        ObjectsConfig::Directory => "objects in files".to_owned(),
        ObjectsConfig::S3 { bucket, .. } => format!("objects in the bucket {bucket}"),
    };
    let absent = Blob {
        digest: Digest::of(Algorithm::Sha256, b"xebec-registry doctor"),
        size: 1,
        object: Some("do/doctor".to_owned()),
    };
    match store.read(&absent, 0..1).await {
        Ok(_) | Err(StoreError::Lost(_)) => Found::well(what, "they can be read"),
        Err(error) => Found::broken(what, error.to_string()),
    }
}

/// Whether the addresses can be listened at. Nothing is accepted.
pub(super) fn listening(config: &Config) -> Vec<Found> {
    let check = |address: &String| {
        let what = format!("address {address}");
        let full = match address.strip_prefix(':') {
            Some(port) => format!("[::]:{port}"),
            None => address.clone(),
        };
        match TcpListener::bind(&full) {
            Ok(_) => Found::well(what, "it is free"),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Found::note(
                what,
                "somebody listens there: this registry, if it serves now, else another program",
            ),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Found::broken(
                what,
                format!("{error}; take a port from 1024 on, or give the program CAP_NET_BIND_SERVICE"),
            ),
            Err(error) => Found::broken(
                what,
                format!("{error}; name an address of this host (server.listen)"),
            ),
        }
    };
    config.server.listen.iter().map(check).collect()
}

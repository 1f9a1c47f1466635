//! A server of a bucket that answers at first and hangs in the middle of each object.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use xebec_store::*;

/// What a place has that gives nothing, in the tests that use such a bucket, until it counts as away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// A server of a bucket whose objects are files. It stops in the middle of each but the mark, and closes nothing. It deletes nothing.
pub(crate) struct SlowBucket {
    pub(crate) endpoint: String,
    how: Arc<How>,
}

#[derive(Default)]
struct How {
    begun: AtomicUsize,
    /// After so many milliseconds it goes on with an object; never, if 0.
    pause: AtomicU64,
    /// So many reads of objects find none.
    missed: AtomicUsize,
    /// Whether it answers nothing at all.
    is_dead: AtomicBool,
}

impl SlowBucket {
    /// Of files in this directory.
    pub(crate) fn of(objects: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let how = Arc::<How>::default();
        let shared = Arc::clone(&how);
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let (objects, how) = (objects.clone(), Arc::clone(&shared));
                std::thread::spawn(move || {
                    // One whose client has gone on is of no use any more.
                    let _ = answer(&mut connection, &objects, &how);
                    // Not closed while the test runs.
                    std::thread::sleep(Duration::from_secs(600));
                });
            }
        });
        Self { endpoint, how }
    }

    /// It goes on with each object after a pause.
    pub(crate) fn that_pauses(self, pause: Duration) -> Self {
        let pause = u64::try_from(pause.as_millis()).unwrap();
        self.how.pause.store(pause, Ordering::SeqCst);
        self
    }

    /// The next read of an object finds none, although it is there.
    pub(crate) fn miss_one(&self) {
        self.how.missed.store(1, Ordering::SeqCst);
    }

    /// It answers nothing from now on.
    pub(crate) fn die(&self) {
        self.how.is_dead.store(true, Ordering::SeqCst);
    }

    /// How many objects it has begun.
    pub(crate) fn begun(&self) -> usize {
        self.how.begun.load(Ordering::SeqCst)
    }
}

fn answer(connection: &mut TcpStream, objects: &Path, how: &How) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let mut words = head.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(());
    };
    if how.is_dead.load(Ordering::SeqCst) || !matches!(method, "get" | "head") {
        return Ok(());
    }
    let key = path.trim_start_matches("/bucket/");
    let is_read = method == "get" && key != "place";
    let less = |missed: usize| missed.checked_sub(1).filter(|_| is_read);
    let is_missed = how.missed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    let bytes = std::fs::read(objects.join(key)).ok();
    let Some(bytes) = bytes.filter(|_| is_missed.is_err()) else {
        return connection
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let (all, date) = (bytes.len(), "last-modified: Mon, 01 Jan 2024 00:00:00 GMT");
    let same = format!("connection: close\r\n{date}\r\netag: \"e\"");
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let Some((first, last)) = range.map(|range| range.split_once('-').unwrap()) else {
        return connection
            .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {all}\r\n{same}\r\n\r\n").as_bytes());
    };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let length = last + 1 - first;
    let range = format!("content-range: bytes {first}-{last}/{all}\r\ncontent-length: {length}");
    connection.write_all(format!("HTTP/1.1 206 Partial Content\r\n{range}\r\n{same}\r\n\r\n").as_bytes())?;
    if key == "place" {
        return connection.write_all(&bytes[first..=last]);
    }
    how.begun.fetch_add(1, Ordering::SeqCst);
    let middle = first + length / 2;
    connection.write_all(&bytes[first..middle])?;
    match how.pause.load(Ordering::SeqCst) {
        0 => Ok(()),
        pause => {
            std::thread::sleep(Duration::from_millis(pause));
            connection.write_all(&bytes[middle..=last])
        }
    }
}

fn bucket_at(endpoint: &str) -> ObjectsConfig {
    ObjectsConfig::S3 {
        endpoint: Some(endpoint.to_owned()),
        public_endpoint: None,
        bucket: "bucket".to_owned(),
        prefix: String::new(),
        region: "region".to_owned(),
        access_key: Some("key".to_owned()),
        secret_key: Some("secret".to_owned()),
    }
}

/// The store anew, with a bucket of this server in place of `one`.
pub(crate) async fn with_one_at(store: &Store, endpoint: &str) -> Store {
    let mut config = store.config().clone();
    config.place_patience = PATIENCE;
    for place in &mut config.places {
        if place.name.as_str() == "one" {
            (place.root, place.objects) = (None, bucket_at(endpoint));
        }
    }
    Store::open(&config).await.unwrap()
}

/// The store anew, with a bucket of this server as its main place.
pub(crate) async fn with_main_at(store: &Store, endpoint: &str) -> Store {
    let mut config = store.config().clone();
    config.place_patience = PATIENCE;
    config.objects = bucket_at(endpoint);
    Store::open(&config).await.unwrap()
}

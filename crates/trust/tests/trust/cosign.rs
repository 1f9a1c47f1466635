//! `cosign verify --key` accepts signatures that `trust::sign` makes, and rejects wrong ones. Needs cosign 2; it
//! reads from a registry of a few lines on loopback that only answers with the documents that it was given.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use xebec_format::digest::Digest;
use xebec_trust::{PrivateKey, RepositoryName, sign};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Bodies by path, with their media types.
type Contents = Arc<Mutex<BTreeMap<String, (&'static str, Vec<u8>)>>>;

/// A registry that is only read; ends when dropped.
struct Registry {
    address: String,
    contents: Contents,
    done: Arc<AtomicBool>,
}

impl Registry {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let contents = Contents::default();
        let done = Arc::new(AtomicBool::new(false));
        let (served, ended) = (contents.clone(), done.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let served = served.clone();
                thread::spawn(move || answer(stream, &served));
            }
        });
        Self {
            address,
            contents,
            done,
        }
    }

    fn put_manifest(&self, tag: &str, manifest: &[u8]) {
        for name in [tag.to_owned(), Digest::of(manifest).to_string()] {
            self.put(format!("/v2/team/app/manifests/{name}"), MANIFEST, manifest);
        }
    }

    fn put_blob(&self, blob: &[u8]) {
        self.put(
            format!("/v2/team/app/blobs/{}", Digest::of(blob)),
            "application/octet-stream",
            blob,
        );
    }

    fn put(&self, path: String, media_type: &'static str, body: &[u8]) {
        self.contents.lock().insert(path, (media_type, body.to_vec()));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
    }
}

/// Answers one request and closes.
fn answer(mut stream: TcpStream, contents: &Contents) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    let _ = reader.read_line(&mut request);
    let mut header = String::new();
    while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
        header.clear();
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let found = contents.lock().get(path).cloned();
    let (status, media_type, body) = match found {
        Some((media_type, body)) => ("200 OK", media_type, body),
        None if path == "/v2/" => ("200 OK", "application/json", b"{}".to_vec()),
        None => ("404 Not Found", "application/json", b"{\"errors\":[]}".to_vec()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
         Connection: close\r\n\r\n",
        body.len(),
        Digest::of(&body)
    );
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}

#[test]
fn cosign_accepts_our_signatures() {
    if let Err(error) = Command::new("cosign").arg("version").output() {
        println!("SKIPPED: cosign: {error}");
        return;
    }
    let registry = Registry::start();
    let artifact = include_bytes!("data/artifact-manifest.json");
    registry.put_manifest("latest", artifact);
    let reference = format!("{}/team/app@{}", registry.address, Digest::of(artifact));

    let directory = tempfile::tempdir().unwrap();
    let cosign_accepts = |key: &PrivateKey| {
        let public = directory.path().join("key.pub");
        std::fs::write(&public, key.public().unwrap().to_pem().unwrap()).unwrap();
        let mut cosign = Command::new("cosign");
        cosign
            .args(["verify", "--insecure-ignore-tlog=true", "--key"])
            .arg(&public)
            .arg(&reference);
        // It asks the network for roots that a plain key does not need; a proxy that is not there keeps it
        // inside.
        cosign
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1");
        let output = cosign.env("HOME", directory.path()).output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    };
    let key = |number: u8| PrivateKey::from_secret(&[number; 32]).unwrap();
    assert!(!cosign_accepts(&key(1)), "nothing is signed yet");

    let name = RepositoryName::new(&registry.address, "team/app").unwrap();
    let mut existing: Option<Vec<u8>> = None;
    for number in [1, 2] {
        let push = sign(&key(number), &name, Digest::of(artifact), existing.as_deref()).unwrap();
        registry.put_blob(&push.config);
        registry.put_blob(&push.payload);
        registry.put_manifest(&push.tag, &push.manifest);
        assert!(cosign_accepts(&key(number)));
        existing = Some(push.manifest);
    }
    assert!(cosign_accepts(&key(1)), "the first signature is still there");
    assert!(!cosign_accepts(&key(3)), "another key signed nothing");
}

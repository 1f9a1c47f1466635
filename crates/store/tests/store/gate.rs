//! A gate in front of an S3 server: it lets requests through as they are, counts the parts that are on their way at the same time, and
//! holds or refuses some of them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How long the answer to a part is held.
const HELD: Duration = Duration::from_millis(150);
const CONFLICT: &[u8] = b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n";
const REFUSAL: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";

#[derive(Default)]
struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
    sent: Mutex<Vec<usize>>,
    refused: Mutex<BTreeSet<usize>>,
    holds_tails: AtomicBool,
    tails_held: AtomicUsize,
    holds_objects: AtomicBool,
    objects_held: AtomicUsize,
    holds_completions: AtomicBool,
    completions_held: AtomicUsize,
    conflicts: AtomicUsize,
}

/// The gate, as long as the test runs.
pub(crate) struct Gate {
    pub(crate) address: String,
    seen: Arc<Seen>,
}

impl Gate {
    /// In front of the server at `http://HOST:PORT`.
    pub(crate) async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (server, seen) = (server.replace("http://", ""), Arc::<Seen>::default());
        let kept = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, seen) = (server.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let server = TcpStream::connect(&server).await.unwrap();
                    // It ends when one of the two closes the connection.
                    let _ = pass(client, server, &seen).await;
                });
            }
        });
        Self { address, seen: kept }
    }

    /// How many parts were on their way at most.
    pub(crate) fn most(&self) -> usize {
        self.seen.most.load(Ordering::SeqCst)
    }

    /// The numbers of the parts that were sent, counted from 1.
    pub(crate) fn sent(&self) -> Vec<usize> {
        self.seen.sent.lock().clone()
    }

    /// Answers that the next so many objects conflict with other requests, and stores none of them.
    pub(crate) fn conflict(&self, objects: usize) {
        self.seen.conflicts.store(objects, Ordering::SeqCst);
    }

    /// Lets tails through from now on, or no longer, and never says that they are stored.
    pub(crate) fn hold_tails(&self, is_held: bool) {
        self.seen.holds_tails.store(is_held, Ordering::SeqCst);
    }

    /// How many tails are stored and not said to be.
    pub(crate) fn tails_held(&self) -> usize {
        self.seen.tails_held.load(Ordering::SeqCst)
    }

    /// Holds objects that are sent as a whole before they reach the store, even if their sender goes away, until this is called again.
    pub(crate) fn hold_objects(&self, is_held: bool) {
        self.seen.holds_objects.store(is_held, Ordering::SeqCst);
    }

    /// How many objects are held, or on their way since they were.
    pub(crate) fn objects_held(&self) -> usize {
        self.seen.objects_held.load(Ordering::SeqCst)
    }

    /// Lets the store put parts together from now on, and never says that it did.
    pub(crate) fn hold_completions(&self) {
        self.seen.holds_completions.store(true, Ordering::SeqCst);
    }

    /// How many objects are whole and not said to be.
    pub(crate) fn completions_held(&self) -> usize {
        self.seen.completions_held.load(Ordering::SeqCst)
    }

    /// Refuses the part of this number from now on, or no longer.
    pub(crate) fn refuse(&self, part: usize, is_refused: bool) {
        let mut refused = self.seen.refused.lock();
        match is_refused {
            true => refused.insert(part),
            false => refused.remove(&part),
        };
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, seen: &Seen) -> io::Result<()> {
    loop {
        let (head, body) = message(&mut client, false).await?;
        let part = part_of(&head).filter(|_| head.starts_with("PUT "));
        if let Some(part) = part {
            seen.sent.lock().push(part);
            let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most.fetch_max(now, Ordering::SeqCst);
        }
        let is_object = head.starts_with("PUT ") && part.is_none();
        let less = |left: usize| left.checked_sub(1);
        if is_object
            && seen
                .conflicts
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok()
        {
            client.write_all(CONFLICT).await?;
            continue;
        }
        if is_object && seen.holds_objects.load(Ordering::SeqCst) {
            seen.objects_held.fetch_add(1, Ordering::SeqCst);
            while seen.holds_objects.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let answer = ask(&mut server, &head, &body).await;
            seen.objects_held.fetch_sub(1, Ordering::SeqCst);
            client.write_all(&answer?).await?;
            continue;
        }
        let is_refused = part.is_some_and(|part| seen.refused.lock().contains(&part));
        // Others are stored before a part is refused.
        let held = if is_refused { 4 * HELD } else { HELD };
        if part.is_some() {
            tokio::time::sleep(held).await;
        }
        let answer = match is_refused {
            true => Ok(REFUSAL.to_vec()),
            false => ask(&mut server, &head, &body).await,
        };
        if part.is_some() {
            seen.now.fetch_sub(1, Ordering::SeqCst);
        }
        let answer = answer?;
        let completes = head.starts_with("POST ") && head.contains("uploadId=");
        if completes && seen.holds_completions.load(Ordering::SeqCst) {
            seen.completions_held.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        if is_object && seen.holds_tails.load(Ordering::SeqCst) {
            seen.tails_held.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        client.write_all(&answer).await?;
    }
}

async fn ask(server: &mut TcpStream, head: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    server.write_all(head.as_bytes()).await?;
    server.write_all(body).await?;
    let (answer, content) = message(server, head.starts_with("HEAD ")).await?;
    Ok([answer.as_bytes(), &content].concat())
}

fn part_of(head: &str) -> Option<usize> {
    let (_, rest) = head.split_once("partNumber=")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A head, and the body after it.
async fn message(stream: &mut TcpStream, has_no_body: bool) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.filter(|_| !has_no_body).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((head, body))
}

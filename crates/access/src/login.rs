//! Passwords of the htpasswd file, verified for requests.
//!
//! A verification takes a processor for tens of milliseconds, so four things bound it. It runs on a thread that may block, and only half
//! as many run at once as there are processors. Its result is remembered for a short time, and a request with the same password waits for
//! a verification that is under way: a client that sends its password with each request pays once. If too many verifications for one
//! client wait, the registry tells the client to come again, so that one that guesses keeps nobody else out. It tells everybody the same
//! if too many wait in all. An unknown user is compared with the hash of another one, always the same for the same name, so that the time
//! does not tell which users exist.
//!
//! The file is looked at once a second while requests come, and read anew when it has changed. If the new text is not sound, the
//! old users stay and the log says why.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Semaphore;

use crate::htpasswd::{self, Htpasswd, HtpasswdError, User};
use crate::password::Hash;
use crate::waiting::{Queue, Turns};

/// How long a right password is remembered: one pull of a large image.
const REMEMBER_RIGHT: Duration = Duration::from_secs(300);

/// How long a wrong one is remembered: a client that tries again at once costs nothing.
const REMEMBER_WRONG: Duration = Duration::from_secs(5);

/// How many results are remembered. One takes about 100 bytes.
const MAX_REMEMBERED: usize = 10_000;

/// How many requests wait for a verification before others are told to come again.
const MAX_WAITING: usize = 256;

/// How many different passwords of one client wait, beside those that are being verified. Users behind one address log in within
/// seconds of each other, but hardly more of them at the same moment.
const MAX_WAITING_OF_ONE: usize = 8;

/// The file is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginsError {
    /// It cannot be read.
    #[error("the htpasswd file {path} cannot be read: {cause}; `xebec-registry user add` makes one")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It is not sound.
    #[error("the htpasswd file {path}: {cause}")]
    Unsound {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: HtpasswdError,
    },
    /// The system has no randomness.
    #[error("the kernel gives no random bytes, without which passwords cannot be remembered safely")]
    NoRandomness,
}

/// How a password turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the user's.
    Right,
    /// It is not, or there is no such user.
    Wrong,
    /// Too many wait, of this client or in all. The client shall come again.
    Busy,
}

/// The users of one file.
#[derive(Debug)]
pub struct Logins {
    path: PathBuf,
    file: Mutex<Watched>,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
    /// Remembered results have no password in them: only a hash of it under this key, which no other process has.
    key: hmac::Key,
    verifying: Arc<Semaphore>,
    waiting: Queue,
    same: Turns<[u8; 32]>,
    verified: AtomicU64,
    counts: [AtomicU64; 3],
}

#[derive(Debug)]
struct Watched {
    users: Arc<Users>,
    looked: Instant,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Users {
    by_name: HashMap<String, User>,
    /// The hashes that passwords of unknown names are compared with.
    all: Vec<Hash>,
}

/// By what a change of the file is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    right: bool,
    until: Instant,
}

impl Logins {
    /// The users of the file at `path`.
    ///
    /// # Errors
    /// See [`LoginsError`].
    pub fn open(path: &Path) -> Result<Self, LoginsError> {
        let (users, seen) = read(path)?;
        let mut key = [0; 32];
        SystemRandom::new()
            .fill(&mut key)
            .map_err(|_| LoginsError::NoRandomness)?;
        let at_once =
            std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2));
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(Watched {
                users: Arc::new(users),
                looked: Instant::now(),
                seen,
            }),
            remembered: Mutex::default(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            verifying: Arc::new(Semaphore::new(at_once)),
            waiting: Queue::default(),
            same: Turns::default(),
            verified: AtomicU64::new(0),
            counts: Default::default(),
        })
    }

    /// Whether this is the user's password. `from` is the address of the client that sends it.
    pub async fn verify(&self, from: Option<IpAddr>, name: &str, password: &str) -> Verdict {
        let verdict = self.verdict(from, name, password).await;
        let [right, wrong, busy] = &self.counts;
        let counter = match verdict {
            Verdict::Right => right,
            Verdict::Wrong => wrong,
            Verdict::Busy => busy,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        verdict
    }

    async fn verdict(&self, from: Option<IpAddr>, name: &str, password: &str) -> Verdict {
        let users = self.users();
        let (hash, known) = match users.by_name.get(name) {
            Some(user) => (&user.hash, true),
            None => match self.stand_in(&users, name) {
                Some(hash) => (hash, false),
                None => return Verdict::Wrong,
            },
        };
        let key = self.key_of(name, password, hash);
        if let Some(verdict) = self.remembered(&key) {
            return verdict;
        }
        let turn = self.same.take(key);
        let _mine = turn.come().await;
        // A request that waited before may have sent the same.
        if let Some(verdict) = self.remembered(&key) {
            return verdict;
        }
        let Some(waiting) = self.waiting.enter(from, MAX_WAITING, MAX_WAITING_OF_ONE) else {
            return Verdict::Busy;
        };
        let Ok(permit) = Arc::clone(&self.verifying).acquire_owned().await else {
            return Verdict::Busy;
        };
        drop(waiting);
        self.verified.fetch_add(1, Ordering::Relaxed);
        let (hash, password) = (hash.clone(), password.to_owned());
        let verification = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            hash.verify(&password)
        });
        let fits = verification.await.unwrap_or(false);
        // A stand-in's password opens nothing, and the answer comes no sooner for that.
        let right = known && fits;
        self.remember(key, right);
        if right { Verdict::Right } else { Verdict::Wrong }
    }

    /// By what a user's refresh tokens are bound to the password; nothing if there is no such user.
    pub fn password_mark(&self, name: &str) -> Option<String> {
        let users = self.users();
        let user = users.by_name.get(name)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, user.hash.as_bytes());
        Some(
            digest
                .as_ref()
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// Whether the file has this user now.
    pub fn knows(&self, name: &str) -> bool {
        self.users().by_name.contains_key(name)
    }

    /// How many passwords were compared with hashes so far, those of unknown users included.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// How many passwords were right, wrong, and not looked at since too many waited. Those that are remembered count, too.
    pub fn outcomes(&self) -> [(&'static str, u64); 3] {
        let [right, wrong, busy] = &self.counts;
        [("right", right), ("wrong", wrong), ("busy", busy)]
            .map(|(outcome, counter)| (outcome, counter.load(Ordering::Relaxed)))
    }

    fn users(&self) -> Arc<Users> {
        let mut file = self.file.lock();
        if file.looked.elapsed() < LOOK_EVERY {
            return Arc::clone(&file.users);
        }
        file.looked = Instant::now();
        if look(&self.path).ok() != Some(file.seen) {
            match read(&self.path) {
                Ok((users, seen)) => {
                    tracing::info!(path = %self.path.display(), users = users.all.len(), "read the htpasswd file anew");
                    file.users = Arc::new(users);
                    file.seen = seen;
                }
                Err(error) => {
                    tracing::error!(%error, "the htpasswd file has changed and is not used; the users before it stay")
                }
            }
        }
        Arc::clone(&file.users)
    }

    /// The hash that a password is compared with when there is no such user: the same one each time.
    fn stand_in<'a>(&self, users: &'a Users, name: &str) -> Option<&'a Hash> {
        let tag = hmac::sign(&self.key, name.as_bytes());
        let start = tag.as_ref().first_chunk::<8>().copied().unwrap_or_default();
        let count = u64::try_from(users.all.len()).ok()?;
        let nth = u64::from_le_bytes(start).checked_rem(count)?;
        users.all.get(usize::try_from(nth).ok()?)
    }

    /// Names what is remembered. The hash is in it, so that nothing remembered outlives a change of the password.
    fn key_of(&self, name: &str, password: &str, hash: &Hash) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [name.as_bytes(), password.as_bytes(), hash.as_bytes()] {
            context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            context.update(part);
        }
        context.sign().as_ref().first_chunk().copied().unwrap_or_default()
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<Verdict> {
        let remembered = self.remembered.lock();
        let entry = remembered.get(key).filter(|entry| entry.until > Instant::now())?;
        Some(if entry.right {
            Verdict::Right
        } else {
            Verdict::Wrong
        })
    }

    fn remember(&self, key: [u8; 32], right: bool) {
        let now = Instant::now();
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, entry| entry.until > now);
        }
        if remembered.len() >= MAX_REMEMBERED {
            // A flood of guesses. Right ones are few, and stay.
            remembered.retain(|_, entry| entry.right);
        }
        if remembered.len() < MAX_REMEMBERED {
            let until = now + if right { REMEMBER_RIGHT } else { REMEMBER_WRONG };
            remembered.insert(key, Remembered { right, until });
        }
    }
}

fn look(path: &Path) -> std::io::Result<Seen> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path)?;
    Ok(Seen {
        modified: metadata.modified().ok(),
        length: metadata.len(),
        inode: metadata.ino(),
    })
}

fn read(path: &Path) -> Result<(Users, Seen), LoginsError> {
    let unreadable = |cause| LoginsError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    // Looked at before it is read: a change in between is noticed the next time.
    let seen = look(path).map_err(unreadable)?;
    let bytes = xebec_kernel::file::read_limited(path, htpasswd::MAX_FILE).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        unreadable(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "it is not text",
        ))
    })?;
    let file = Htpasswd::parse(&text).map_err(|cause| LoginsError::Unsound {
        path: path.to_owned(),
        cause,
    })?;
    let mut users = Users::default();
    for user in file.users() {
        users.all.push(user.hash.clone());
        users.by_name.insert(user.name.clone(), user.clone());
    }
    Ok((users, seen))
}

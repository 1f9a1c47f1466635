//! Keeps the facts about images for a while: a pull asks for each layer, and others may pull the same.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use xebec_format::digest::Digest;
use xebec_snapshotter::lazy::NotLazy;

use xebec_images::admission::Admission;

/// How long an image's admission counts: for the layers of one pull.
const FRESH: Duration = Duration::from_secs(30);
/// How long a failed admission counts: for requests that waited for the same image meanwhile.
const FRESH_FAILURE: Duration = Duration::from_secs(2);

/// The login by which an image is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    /// Its pull, with the login that it brought.
    Pull,
    /// Somebody else.
    Other,
}

/// A reference, the manifest's digest if that was named, and the client that asked.
type Key = (String, Option<String>, Asker);
/// The answer, and the time when it was found.
type Found = Arc<OnceCell<(Instant, Result<Arc<Admission>, NotLazy>)>>;

/// The facts that were found about images, for a time.
#[derive(Default)]
pub(super) struct AdmissionCache(Mutex<HashMap<Key, Found>>);

impl AdmissionCache {
    /// The facts about an image, those that are known or else those that `find` finds, once for all requests that ask meanwhile.
    pub(super) async fn get(
        &self,
        asker: Asker,
        reference: &str,
        manifest: Option<&str>,
        find: impl Future<Output = Result<Admission, NotLazy>>,
    ) -> Result<Arc<Admission>, NotLazy> {
        let found = self.entry((reference.to_owned(), manifest.map(str::to_owned), asker));
        let found = found.get_or_init(|| async {
            let found = find.await.map(Arc::new);
            (Instant::now(), found)
        });
        found.await.1.clone()
    }

    /// The next request finds the facts about an image out again.
    pub(super) fn forget(&self, reference: &str, manifest: Option<&str>) {
        let key = (reference.to_owned(), manifest.map(str::to_owned), Asker::Other);
        self.0.lock().remove(&key);
    }

    /// Manifests that were found a moment ago, or are asked about, whose layers may be asked for next; `None` if it is being found out
    /// just now which one somebody means.
    pub(super) fn manifests(&self) -> Option<HashSet<Digest>> {
        let all = self.0.lock();
        let mut manifests = HashSet::new();
        for ((_, named, _), found) in all.iter() {
            match found.get() {
                Some((since, Ok(admission))) if since.elapsed() < FRESH => {
                    manifests.insert(admission.manifest);
                }
                Some(_) => {}
                // However long its registry takes: nobody else's image stays for that.
                None if Arc::strong_count(found) > 1 => {
                    manifests.insert(named.as_ref()?.parse().ok()?);
                }
                None => {}
            }
        }
        Some(manifests)
    }

    /// Forgets all but the facts about images of these manifests: something of others went, perhaps while a request found out that it
    /// was there. Errors stay.
    pub(super) fn forget_others(&self, manifests: &HashSet<Digest>) {
        self.0.lock().retain(|_, found| match found.get() {
            Some((_, Ok(admission))) => manifests.contains(&admission.manifest),
            Some((_, Err(_))) => true,
            None => false,
        });
    }

    /// The next request finds the facts about images of one of these manifests out again.
    pub(super) fn forget_manifests(&self, manifests: &BTreeSet<String>) {
        self.0.lock().retain(|_, found| match found.get() {
            Some((_, Ok(admission))) => !manifests.contains(&admission.manifest.to_string()),
            _ => true,
        });
    }

    fn entry(&self, key: Key) -> Found {
        let mut all = self.0.lock();
        all.retain(|_, found| match found.get() {
            Some((since, Err(_))) => since.elapsed() < FRESH_FAILURE,
            Some((since, Ok(_))) => since.elapsed() < FRESH,
            // Somebody asks, or gave up.
            None => Arc::strong_count(found) > 1,
        });
        all.entry(key).or_default().clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use xebec_snapshotter::lazy::Reason;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Registry {
        admissions: AdmissionCache,
        asked: AtomicUsize,
    }

    impl Registry {
        /// Asks for an image of a registry that does not answer.
        async fn ask(&self, asker: Asker) {
            let find = async {
                self.asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PATIENCE).await;
                Err(NotLazy {
                    reason: Reason::Unreachable,
                    detail: String::new(),
                    base: None,
                })
            };
            let found = self
                .admissions
                .get(asker, "registry.example/app:1", None, find)
                .await;
            assert!(found.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_for_the_same_does_not_wait_again() {
        let registry = Arc::new(Registry {
            admissions: AdmissionCache::default(),
            asked: AtomicUsize::new(0),
        });
        let begun = Instant::now();
        // One after the other, as pulls of one layer come.
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let mut all = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (registry, turn) = (registry.clone(), turn.clone());
            all.spawn(async move {
                // Some ask for another layer of the same image.
                let _turn = match number % 2 {
                    0 => Some(turn.lock().await),
                    _ => None,
                };
                registry.ask(Asker::Other).await;
            });
        }
        all.join_all().await;
        assert_eq!(registry.asked.load(Ordering::Relaxed), 1);
        assert!(begun.elapsed() < PATIENCE + FRESH_FAILURE);
        // The answer for a login that is being tried does not serve other clients.
        registry.ask(Asker::Pull).await;
        assert_eq!(registry.asked.load(Ordering::Relaxed), 2);
        tokio::time::sleep(FRESH_FAILURE).await;
        registry.ask(Asker::Pull).await;
        assert_eq!(registry.asked.load(Ordering::Relaxed), 3);
        assert_eq!(registry.admissions.0.lock().len(), 1);
    }

    /// A registry that is silent keeps its own image from going, and no other.
    #[tokio::test(start_paused = true)]
    async fn an_asker_names_its_image() {
        let admissions = AdmissionCache::default();
        let [asked, found] = [b"asked", b"found"].map(|text| Digest::of(text));
        let admission = Admission {
            manifest: found,
            layers: Vec::new(),
            keys: Vec::new(),
        };
        let known = admissions.get(Asker::Other, "known", None, async { Ok(admission) });
        known.await.unwrap();
        let name = asked.to_string();
        let silent = admissions.get(Asker::Pull, "silent", Some(&name), std::future::pending());
        tokio::pin!(silent);
        assert!(is_pending(&mut silent).await);
        let manifests = admissions.manifests();
        assert_eq!(manifests, Some(HashSet::from([asked, found])));
        // It may lead to another image than was said, of which something went meanwhile.
        admissions.forget_others(&manifests.unwrap());
        assert_eq!(admissions.0.lock().len(), 1);
        // This request is just finding out which image the name leads to.
        let unknown = admissions.get(Asker::Other, "unknown", None, std::future::pending());
        tokio::pin!(unknown);
        assert!(is_pending(&mut unknown).await);
        assert_eq!(admissions.manifests(), None);
    }

    async fn is_pending(found: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(1), found)
            .await
            .is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn an_asker_that_gives_up_leaves_nothing() {
        let registry = Registry {
            admissions: AdmissionCache::default(),
            asked: AtomicUsize::new(0),
        };
        for _ in 0..3 {
            let asked = tokio::time::timeout(FRESH_FAILURE, registry.ask(Asker::Other)).await;
            assert!(asked.is_err());
        }
        assert_eq!(registry.asked.load(Ordering::Relaxed), 3);
        drop(
            registry
                .admissions
                .entry(("another".to_owned(), None, Asker::Other)),
        );
        drop(
            registry
                .admissions
                .entry(("one more".to_owned(), None, Asker::Other)),
        );
        assert_eq!(registry.admissions.0.lock().len(), 1);
    }
}

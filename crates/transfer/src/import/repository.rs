//! One repository of a directory: its manifests, images before the indexes that list them, and its tags.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use xebec_store::{Digest, RepositoryName, Result, Store, StoreError, Tag};
use xebec_upstream::manifest::Facts;

use super::blobs::Blobs;
use super::layout;
use super::options::ImportOptions;
use super::source::{Source, said};
use crate::put::{self, Dated, Refusal};
use crate::tally::Tally;

/// Manifests that are put at the same time: they share the syncs of the database.
const AT_ONCE: usize = 4;

/// A tag of the other registry, and when it was set there: when the file was written that says which manifest it names.
type Written = (Tag, u64);

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Importer<'a> {
    pub(super) store: &'a Store,
    pub(super) source: &'a Source,
    pub(super) options: &'a ImportOptions,
    pub(super) tally: &'a Tally,
    pub(super) blobs: &'a Blobs,
    pub(super) name: &'a RepositoryName,
}

impl Importer<'_> {
    /// Imports the repository.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) async fn run(self) -> Result<()> {
        let mut tags = self.tags();
        let revisions = self.revisions();
        for (digest, tags) in &tags {
            if !revisions.contains(digest) {
                for (tag, _) in tags {
                    self.skip(
                        format!("tag {tag}"),
                        format!("it names {digest}, which the repository does not have"),
                    );
                }
            }
        }
        // Indexes wait until what they list is here.
        let waiting = Mutex::new(HashMap::new());
        let images: Vec<(Digest, Vec<Written>)> = revisions
            .into_iter()
            .map(|digest| {
                let tags = tags.remove(&digest).unwrap_or_default();
                (digest, tags)
            })
            .collect();
        stream::iter(images)
            .map(Ok::<_, StoreError>)
            .try_for_each_concurrent(AT_ONCE, |(digest, tags)| {
                let waiting = &waiting;
                async move {
                    if let Some(children) = self.manifest(&digest, &tags, true).await? {
                        waiting.lock().insert(digest, (children, tags));
                    }
                    Ok(())
                }
            })
            .await?;
        self.indexes(waiting.into_inner()).await
    }

    /// Puts indexes, those first that list no others. A digest cannot be in itself, so there is always one.
    async fn indexes(self, mut waiting: HashMap<Digest, (Vec<Digest>, Vec<Written>)>) -> Result<()> {
        while !waiting.is_empty() {
            let is_ready = |children: &[Digest]| children.iter().all(|child| !waiting.contains_key(child));
            let ready = waiting.iter().filter(|(_, (children, _))| is_ready(children));
            let ready: Vec<Digest> = ready.map(|(digest, _)| digest.clone()).collect();
            if ready.is_empty() {
                break;
            }
            for digest in ready {
                if let Some((_, tags)) = waiting.remove(&digest) {
                    self.manifest(&digest, &tags, false).await?;
                }
            }
        }
        Ok(())
    }

    fn skip(self, what: impl Into<String>, reason: impl Into<String>) {
        self.tally.skip(self.name.as_str(), what, reason);
    }

    fn list(self, path: &str) -> Vec<String> {
        self.source.list(path).unwrap_or_else(|error| {
            self.skip(self.source.shown(path), said(&error));
            Vec::new()
        })
    }

    /// The tags by the manifests that they name.
    fn tags(self) -> HashMap<Digest, Vec<Written>> {
        let mut tags: HashMap<Digest, Vec<Written>> = HashMap::new();
        for text in self.list(&layout::tags(self.name)) {
            match self.tag(&text) {
                Ok((digest, tag)) => tags.entry(digest).or_default().push(tag),
                Err(reason) => self.skip(format!("tag {text:?}"), reason),
            }
        }
        tags
    }

    fn tag(self, text: &str) -> Result<(Digest, Written), String> {
        let tag: Tag = text
            .parse()
            .map_err(|error: xebec_store::InvalidName| error.to_string())?;
        let path = layout::tag(self.name, &tag);
        let wrong = |reason: String| format!("{}: {reason}", self.source.shown(&path));
        let (link, written) = self.source.link(&path).map_err(|error| wrong(said(&error)))?;
        let digest = link
            .parse()
            .map_err(|error: xebec_store::InvalidDigest| wrong(error.to_string()))?;
        Ok((digest, (tag, written)))
    }

    /// The manifests that the repository has.
    fn revisions(self) -> HashSet<Digest> {
        let mut revisions = HashSet::new();
        for algorithm in layout::ALGORITHMS {
            for hex in self.list(&layout::revisions(self.name, algorithm)) {
                let Ok(digest) = format!("{algorithm}:{hex}").parse::<Digest>() else {
                    self.skip(format!("manifest {algorithm}:{hex:?}"), "it is no digest");
                    continue;
                };
                let path = layout::revision(self.name, &digest);
                match self.source.link(&path) {
                    Ok((link, _)) if link == digest.to_string() => {
                        revisions.insert(digest);
                    }
                    Ok(_) => self.skip(
                        format!("manifest {digest}"),
                        format!("{} names something else", self.source.shown(&path)),
                    ),
                    // That is how the other registry deletes one.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        self.tally.add(|moved| moved.deleted += 1);
                    }
                    Err(error) => self.skip(
                        format!("manifest {digest}"),
                        format!("{}: {}", self.source.shown(&path), said(&error)),
                    ),
                }
            }
        }
        revisions
    }

    /// Puts a manifest with its tags, after its blobs. Returns what an index lists, instead, if those are to wait.
    async fn manifest(
        self,
        digest: &Digest,
        tags: &[Written],
        indexes_wait: bool,
    ) -> Result<Option<Vec<Digest>>> {
        let read = self.blobs.manifest(digest).and_then(|content| {
            let facts = Facts::read(&content, None).map_err(|error| error.to_string())?;
            Ok((content, facts))
        });
        let (content, facts) = match read {
            Ok(read) => read,
            Err(reason) => {
                self.skip(shown(digest, tags), reason);
                return Ok(None);
            }
        };
        if indexes_wait && facts.is_index() {
            return Ok(Some(put::children(&facts.references).cloned().collect()));
        }
        match self.take(digest, tags, content, facts).await {
            Ok(()) => {}
            Err(Refusal::Skip(reason)) => self.skip(shown(digest, tags), reason),
            Err(Refusal::Store(error)) => return Err(error),
        }
        Ok(None)
    }

    async fn take(
        self,
        digest: &Digest,
        tags: &[Written],
        content: bytes::Bytes,
        facts: Facts,
    ) -> Result<(), Refusal> {
        let mut brought = Vec::new();
        for reference in put::blobs(&facts.references) {
            match self.blobs.bring(self.name, &reference.digest).await {
                Ok(()) => brought.push(reference.digest.clone()),
                Err(Refusal::Skip(reason)) if reference.required && !self.options.rules.sparse => {
                    return Err(Refusal::Skip(reason));
                }
                // Layers that may not be distributed are seldom in a registry.
                Err(Refusal::Skip(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let is_here = self.store.has_manifest(self.name, digest).await?;
        let tags = self.due(digest, tags).await?;
        if self.options.dry_run {
            self.count(is_here, tags.len());
            return Ok(());
        }
        if !is_here || !tags.is_empty() {
            self.put(digest, content, facts, &tags).await?;
        }
        self.count(is_here, tags.len());
        // A blob that did not come keeps its file.
        for digest in &brought {
            self.blobs.remove(self.name, digest).await?;
        }
        Ok(())
    }

    fn count(self, is_here: bool, tags: usize) {
        self.tally.add(|moved| {
            match is_here {
                true => moved.manifests_here += 1,
                false => moved.manifests += 1,
            }
            moved.tags += tags as u64;
        });
    }

    /// The tags that do not name the manifest here yet. Of one that somebody has set here since, the later word counts.
    async fn due(self, digest: &Digest, tags: &[Written]) -> Result<Vec<Dated>, Refusal> {
        let mut due = Vec::new();
        for (tag, written) in tags {
            match self.store.tag(self.name, tag).await? {
                Some(here) if here.digest == *digest => self.tally.add(|moved| moved.tags_here += 1),
                Some(here) if here.updated > *written => {
                    let reason = format!("it was set here later than there, and stays at {}", here.digest);
                    self.skip(format!("tag {tag}"), reason);
                }
                Some(_) if (self.options.rules.immutable)(self.name, tag) => {
                    self.skip(
                        format!("tag {tag}"),
                        "it is immutable here, and names something else",
                    );
                }
                // Not now: all would be equally new, and rules for the newest would keep any of them.
                _ => due.push((tag.clone(), Some(*written))),
            }
        }
        Ok(due)
    }

    async fn put(
        self,
        digest: &Digest,
        content: bytes::Bytes,
        facts: Facts,
        tags: &[Dated],
    ) -> Result<(), Refusal> {
        let new = put::DatedManifest {
            digest,
            content,
            facts,
            tags,
        };
        put::manifest(self.store, &self.options.rules, self.name, new).await?;
        Ok(())
    }
}

/// A manifest with its tags, for people.
fn shown(digest: &Digest, tags: &[Written]) -> String {
    let names: Vec<&str> = tags.iter().take(8).map(|(tag, _)| tag.as_str()).collect();
    match names.is_empty() {
        true => format!("manifest {digest}"),
        false => format!("manifest {digest} ({})", names.join(", ")),
    }
}

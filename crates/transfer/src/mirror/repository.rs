//! One repository is copied: its tags, the manifests that they name with all platforms, and what refers to each of them.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use xebec_kernel::keyed_lock::KeyedLock;
use xebec_oci::FetchedManifest;
use xebec_store::{Digest, ReferenceKind, Store, Tag};
use xebec_upstream::manifest::Facts;

use super::blobs::Blobs;
use super::image_time;
use super::names::{self, Pair};
use super::settings::MirrorSettings;
use super::source::{MirrorError, Source, Trouble};
use crate::put::{self, Rules};
use crate::tally::Tally;

/// So many tags of the repository here are looked at at once.
const PAGE: usize = 1000;
/// Indexes in indexes are followed so deep: each level takes room on the stack, and the source says how many there are.
const DEEPEST: usize = 16;

/// See the module.
pub(super) struct Copier<'a> {
    settings: &'a MirrorSettings,
    rules: &'a Rules,
    blobs: &'a Blobs,
    tally: &'a Tally,
    pair: &'a Pair,
    /// Tags of signatures and the like, by the manifest to which they belong.
    attached: HashMap<Digest, Vec<String>>,
    /// Tags that were copied in this run.
    tagged: Mutex<HashSet<String>>,
    /// Manifests of which it was asked in this run what refers to them.
    asked: Mutex<HashSet<Digest>>,
    turns: KeyedLock<Digest>,
}

/// The parts of a [`Copier`].
pub(super) struct CopierParts<'a> {
    pub(super) settings: &'a MirrorSettings,
    pub(super) rules: &'a Rules,
    pub(super) blobs: &'a Blobs,
    pub(super) tally: &'a Tally,
    pub(super) pair: &'a Pair,
}

impl<'a> Copier<'a> {
    /// The copier of a repository with these tags.
    pub(super) fn new(parts: CopierParts<'a>, tags: &[String]) -> Self {
        Self {
            settings: parts.settings,
            rules: parts.rules,
            blobs: parts.blobs,
            tally: parts.tally,
            pair: parts.pair,
            attached: names::attached(tags),
            tagged: Mutex::default(),
            asked: Mutex::default(),
            turns: KeyedLock::default(),
        }
    }

    fn store(&self) -> &Store {
        &self.blobs.store
    }

    fn source(&self) -> &Source {
        &self.blobs.source
    }

    /// Copies what one of the patterns covers among these tags, which are all that the repository has there.
    ///
    /// # Errors
    /// If the source is away, or the store fails.
    pub(super) async fn run(&self, tags: &[String]) -> Result<(), MirrorError> {
        let wanted = tags.iter().filter(|tag| self.is_covered(tag)).map(Ok);
        stream::iter(wanted)
            .try_for_each_concurrent(self.settings.jobs, |tag| self.wanted(tag))
            .await?;
        match self.settings.prune {
            true => self.prune(tags).await,
            false => Ok(()),
        }
    }

    fn is_covered(&self, tag: &str) -> bool {
        let patterns = &self.settings.tags;
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.covers(tag))
    }

    fn skip(&self, what: String, trouble: Trouble) -> Result<(), MirrorError> {
        match trouble {
            Trouble::Skip(reason) => {
                self.tally.skip(self.pair.here.as_str(), what, reason);
                Ok(())
            }
            Trouble::End(error) => Err(error),
        }
    }

    async fn wanted(&self, tag: &str) -> Result<(), MirrorError> {
        // A tag that lists what refers to a manifest is made here anew from what the list has.
        if let Some((subject, "")) = names::belongs(tag) {
            return self.referrers(vec![subject]).await;
        }
        match self.tag(tag).await {
            Ok(tree) => self.referrers(tree).await,
            Err(trouble) => self.skip(format!("tag {tag}"), trouble),
        }
    }

    /// Copies a tag. Returns its manifest, and all that this lists.
    async fn tag(&self, text: &str) -> Result<Vec<Digest>, Trouble> {
        if !self.tagged.lock().insert(text.to_owned()) {
            return Ok(Vec::new());
        }
        let tag: Tag = text
            .parse()
            .map_err(|error: xebec_store::InvalidName| Trouble::Skip(error.to_string()))?;
        let named = self.source().names(&self.pair.there, text).await?;
        let (digest, tree) = match named {
            Some(digest) => {
                let digest = ours(&digest.to_string())?;
                let tree = self.manifest(&digest, 0).await?;
                (digest, tree)
            }
            None => {
                let fetched = self.source().manifest(&self.pair.there, text).await?;
                let digest = ours(&fetched.digest.to_string())?;
                let tree = self.keep(&digest, fetched, 0).await?;
                (digest, tree)
            }
        };
        self.set(tag, &digest).await?;
        Ok(tree)
    }

    async fn set(&self, tag: Tag, digest: &Digest) -> Result<(), Trouble> {
        let (store, here) = (self.store(), &self.pair.here);
        let known = store.tag(here, &tag).await?;
        if known.as_ref().is_some_and(|known| known.digest == *digest) {
            self.tally.add(|moved| moved.tags_here += 1);
            return Ok(());
        }
        let at = match known {
            Some(_) => None,
            None => image_time::image_time(store, here, digest).await?,
        };
        let gone = || Trouble::Skip(format!("{digest} was deleted here while it was copied"));
        let manifest = store.manifest(here, digest).await?.ok_or_else(gone)?;
        let facts = read(&manifest.content, Some(&manifest.media_type))?;
        let new = put::DatedManifest {
            digest,
            content: manifest.content,
            facts,
            tags: &[(tag, at)],
        };
        put::manifest(store, self.rules, here, new).await?;
        self.tally.add(|moved| moved.tags += 1);
        Ok(())
    }

    /// Copies a manifest that is so many indexes deep, unless it is here whole. Returns it, and all that it lists.
    async fn manifest(&self, digest: &Digest, depth: usize) -> Result<Vec<Digest>, Trouble> {
        let _turn = self.turns.take(digest.clone()).await;
        if let Some(tree) = self.whole(digest).await? {
            self.tally.add(|moved| moved.manifests_here += tree.len() as u64);
            return Ok(tree);
        }
        let fetched = self
            .source()
            .manifest(&self.pair.there, &digest.to_string())
            .await?;
        self.keep(digest, fetched, depth).await
    }

    /// A manifest and all that it lists, if all of them and their blobs are here.
    async fn whole(&self, digest: &Digest) -> Result<Option<Vec<Digest>>, Trouble> {
        let (store, here) = (self.store(), &self.pair.here);
        let (mut tree, mut waiting) = (HashSet::new(), vec![digest.clone()]);
        while let Some(digest) = waiting.pop() {
            // Several indexes may list the same manifest.
            if tree.contains(&digest) {
                continue;
            }
            if !store.has_manifest(here, &digest).await? {
                return Ok(None);
            }
            for (kind, named) in store.references(here, &digest).await? {
                if kind == ReferenceKind::Manifest {
                    waiting.push(named);
                } else if store.blob(here, &named).await?.is_none() {
                    return Ok(None);
                }
            }
            tree.insert(digest);
        }
        Ok(Some(tree.into_iter().collect()))
    }

    /// Puts a manifest, after what it names.
    async fn keep(
        &self,
        digest: &Digest,
        fetched: FetchedManifest,
        depth: usize,
    ) -> Result<Vec<Digest>, Trouble> {
        if depth > DEEPEST {
            return Err(Trouble::Skip(format!(
                "it is in more than {DEEPEST} indexes, one in the other"
            )));
        }
        let facts = read(&fetched.bytes, fetched.media_type.as_deref())?;
        // Each manifest once: a source whose indexes list the same ones again and again would fill all memory.
        let mut tree = HashSet::new();
        for child in put::children(&facts.references) {
            match Box::pin(self.manifest(child, depth + 1)).await {
                Ok(below) => tree.extend(below),
                Err(Trouble::Skip(reason)) => {
                    let reason = format!("manifest {child} of it: {reason}");
                    if !self.rules.sparse {
                        return Err(Trouble::Skip(reason));
                    }
                    self.tally
                        .skip(self.pair.here.as_str(), format!("manifest {digest}"), reason);
                }
                Err(end) => return Err(end),
            }
        }
        self.bring(&facts, &fetched.bytes).await?;
        let new = put::DatedManifest {
            digest,
            content: fetched.bytes,
            facts,
            tags: &[],
        };
        put::manifest(self.store(), self.rules, &self.pair.here, new).await?;
        self.tally.add(|moved| moved.manifests += 1);
        tree.insert(digest.clone());
        Ok(tree.into_iter().collect())
    }

    /// Brings the blobs of an image. If one of them cannot be brought, none begins any more, and those on their way come to their end: one
    /// that was dropped would leave an upload.
    async fn bring(&self, facts: &Facts, content: &[u8]) -> Result<(), Trouble> {
        let (sizes, first) = (sizes(content), Mutex::new(None));
        stream::iter(put::blobs(&facts.references))
            .for_each_concurrent(self.settings.jobs, |reference| {
                let size = sizes.get(&reference.digest.to_string()).copied().unwrap_or(0);
                let first = &first;
                async move {
                    if first.lock().is_some() {
                        return;
                    }
                    match self.blobs.bring(self.pair, &reference.digest, size).await {
                        Ok(()) => {}
                        // Layers that may not be distributed are seldom in a registry.
                        Err(Trouble::Skip(_)) if !reference.required || self.rules.sparse => {}
                        Err(trouble) => {
                            first.lock().get_or_insert(trouble);
                        }
                    }
                }
            })
            .await;
        first.into_inner().map_or(Ok(()), Err)
    }

    /// Copies what refers to these manifests, and what refers to that.
    async fn referrers(&self, digests: Vec<Digest>) -> Result<(), MirrorError> {
        let mut waiting = digests;
        while let Some(digest) = waiting.pop() {
            if !self.asked.lock().insert(digest.clone()) {
                continue;
            }
            for tag in self.attached.get(&digest).into_iter().flatten() {
                match self.tag(tag).await {
                    Ok(tree) => waiting.extend(tree),
                    Err(trouble) => self.skip(format!("tag {tag}"), trouble)?,
                }
            }
            match self.listed(&digest).await {
                Ok(found) => waiting.extend(found),
                Err(trouble) => self.skip(format!("what refers to {digest}"), trouble)?,
            }
        }
        Ok(())
    }

    async fn listed(&self, subject: &Digest) -> Result<Vec<Digest>, Trouble> {
        // The client knows no other digests, and no other registry lists by them.
        let Ok(known) = subject.to_string().parse() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for entry in self.source().referrers(&self.pair.there, &known).await? {
            let digest = ours(&entry.digest.to_string())?;
            match self.manifest(&digest, 0).await {
                Ok(tree) => found.extend(tree),
                Err(trouble) => self
                    .skip(format!("{digest}, which refers to {subject}"), trouble)
                    .map_err(Trouble::End)?,
            }
        }
        Ok(found)
    }

    /// Removes tags here that one of the patterns covers and the source has no longer. An empty list is more likely a fault there.
    async fn prune(&self, theirs: &[String]) -> Result<(), MirrorError> {
        let here = &self.pair.here;
        if theirs.is_empty() {
            self.tally
                .skip(here.as_str(), "pruning", "the source lists no tags at all");
            return Ok(());
        }
        let theirs: HashSet<&str> = theirs.iter().map(String::as_str).collect();
        let mut after: Option<String> = None;
        loop {
            let Some(page) = self.store().tags(here, PAGE, after.as_deref()).await? else {
                return Ok(());
            };
            for tag in &page.items {
                let name = tag.name.as_str();
                if theirs.contains(name) || !self.is_covered(name) {
                    continue;
                }
                if (self.rules.immutable)(here, &tag.name) {
                    self.tally.skip(
                        here.as_str(),
                        format!("tag {name}"),
                        "the source has it no longer, and it is immutable here",
                    );
                } else if self.store().delete_tag(here, &tag.name).await? {
                    self.tally.add(|moved| moved.tags_removed += 1);
                }
            }
            match page.items.last().filter(|_| page.next) {
                Some(last) => after = Some(last.name.to_string()),
                None => return Ok(()),
            }
        }
    }
}

fn ours(digest: &str) -> Result<Digest, Trouble> {
    digest
        .parse()
        .map_err(|error: xebec_store::InvalidDigest| Trouble::Skip(error.to_string()))
}

fn read(content: &[u8], media_type: Option<&str>) -> Result<Facts, Trouble> {
    Facts::read(content, media_type).map_err(|error| Trouble::Skip(error.to_string()))
}

/// The sizes of blobs that a manifest gives.
fn sizes(content: &[u8]) -> HashMap<String, u64> {
    #[derive(Deserialize)]
    struct Image {
        #[serde(default)]
        config: Option<Sized>,
        #[serde(default)]
        layers: Vec<Sized>,
    }
    #[derive(Deserialize)]
    struct Sized {
        digest: String,
        size: u64,
    }
    let Ok(image) = serde_json::from_slice::<Image>(content) else {
        return HashMap::new();
    };
    let all = image.config.into_iter().chain(image.layers);
    all.map(|blob| (blob.digest, blob.size)).collect()
}

//! Manifests: pushed and found, and their referrers.

use crate::error::{Result, StoreError};
use crate::model::{Manifest, ManifestWithin, NewManifest, Page, PutManifest, ReferenceKind, Referrer};
use crate::name::{RepositoryName, Tag};
use crate::records::manifests::{self, Refusal};
use crate::records::referrers::{self, Listing};
use crate::records::repositories;
use crate::store::{Store, now};
use xebec_objects::Digest;

/// Of a manifest with so many references, it is looked beforehand whether all of them are here.
const MANY_REFERENCES: usize = 100;

/// Referrers that are read at once.
const STEP: usize = 1000;

impl Refusal {
    /// As a caller is told of it.
    pub(crate) fn into_error(self, repository: &RepositoryName) -> StoreError {
        let repository = repository.clone();
        match self {
            Self::Missing(missing) => StoreError::MissingReferences { repository, missing },
            Self::Immutable(tag, digest) => StoreError::ImmutableTag {
                repository,
                tag,
                digest,
            },
        }
    }
}

impl Store {
    /// Takes a manifest, and has tags name it: all of it or nothing. When this has returned, it is durable.
    ///
    /// # Errors
    /// If it names what the repository lacks, a tag may not be moved, the digest is not that of the content, or the database fails.
    pub async fn put_manifest(
        &self,
        repository: &RepositoryName,
        new: &NewManifest,
        new_tags: &[Tag],
    ) -> Result<PutManifest> {
        let new_tags: Vec<_> = new_tags.iter().map(|tag| (tag.clone(), None)).collect();
        self.put_manifest_dated(repository, new, &new_tags).await
    }

    /// The same for what another registry has: with each tag comes when it was set there, in milliseconds since 1970, if that is known.
    /// A time in the future counts as now.
    ///
    /// # Errors
    /// As [`Store::put_manifest`].
    pub async fn put_manifest_dated(
        &self,
        repository: &RepositoryName,
        new: &NewManifest,
        new_tags: &[(Tag, Option<u64>)],
    ) -> Result<PutManifest> {
        self.check_manifest(new)?;
        if new.references.len() >= MANY_REFERENCES {
            self.look_up(repository, new).await?;
        }
        self.check_room().await?;
        let (name, new, new_tags) = (repository.clone(), new.clone(), new_tags.to_vec());
        let put = self
            .write_records("record a manifest", move |tx| {
                manifests::put(tx, &name, &new, &new_tags, now())
            })
            .await?;
        put.map_err(|refusal| refusal.into_error(repository))
    }

    /// Whether a manifest has the bytes that it says, and not too many.
    pub(crate) fn check_manifest(&self, new: &NewManifest) -> Result<()> {
        let (size, limit) = (new.content.len() as u64, self.inner.config.max_manifest);
        if size > limit {
            return Err(StoreError::ManifestTooLarge { size, limit });
        }
        let found = Digest::of(new.digest.algorithm(), &new.content);
        if found != new.digest {
            let wanted = new.digest.clone();
            return Err(StoreError::DigestMismatch { wanted, found });
        }
        Ok(())
    }

    /// Refuses a manifest that names what is not here before others have to wait for that: SQLite has one writer.
    async fn look_up(&self, repository: &RepositoryName, new: &NewManifest) -> Result<()> {
        let (name, new) = (repository.clone(), new.clone());
        let missing = self.read_records("look up what a manifest names", move |tx| {
            let id = repositories::find(tx, &name)?;
            manifests::missing(tx, id, &new)
        });
        let missing = missing.await?;
        if missing.is_empty() {
            return Ok(());
        }
        let repository = repository.clone();
        Err(StoreError::MissingReferences { repository, missing })
    }

    /// A manifest of a repository.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn manifest(&self, repository: &RepositoryName, digest: &Digest) -> Result<Option<Manifest>> {
        let found = self.manifest_within(repository, digest, u64::MAX).await;
        found.map(whole)
    }

    /// The same, if it has no more than `most` bytes: the caller's memory has room for so many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn manifest_within(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        most: u64,
    ) -> Result<Option<ManifestWithin>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records("find a manifest", move |tx| {
            manifests::find(tx, &repository, &digest, most)
        })
        .await
    }

    /// Whether a repository has a manifest.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn has_manifest(&self, repository: &RepositoryName, digest: &Digest) -> Result<bool> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records("look for a manifest", move |tx| {
            manifests::exists_named(tx, &repository, &digest)
        })
        .await
    }

    /// The manifest that a tag names.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tagged_manifest(&self, repository: &RepositoryName, tag: &Tag) -> Result<Option<Manifest>> {
        let found = self.tagged_manifest_within(repository, tag, u64::MAX).await;
        found.map(whole)
    }

    /// The same, if it has no more than `most` bytes.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tagged_manifest_within(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
        most: u64,
    ) -> Result<Option<ManifestWithin>> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.read_records("find the manifest of a tag", move |tx| {
            manifests::find_tagged(tx, &repository, &tag, most)
        })
        .await
    }

    /// The references of a manifest; empty if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn references(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Vec<(ReferenceKind, Digest)>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records(
            "find what a manifest names",
            move |tx| match repositories::find(tx, &repository)? {
                Some(id) => manifests::references(tx, id, &digest),
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    /// All manifests of a repository, without annotations, in the order of their digests.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn manifests(
        &self,
        repository: &RepositoryName,
        n: usize,
        after: Option<&Digest>,
    ) -> Result<Page<Referrer>> {
        let (repository, after) = (repository.clone(), after.cloned());
        let listing = Listing {
            subject: None,
            artifact_type: None,
            annotated: false,
        };
        self.read_records("list manifests", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => referrers::list(tx, id, &listing, n, after.as_ref()),
                None => Ok(Page::cut(Vec::new(), n)),
            }
        })
        .await
    }

    /// The manifests of a repository that refer to `subject`, which need not be here, in the order of their digests. A page ends before it
    /// has `n` where their annotations are long, but has one at least.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn referrers(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
        artifact_type: Option<&str>,
        n: usize,
        after: Option<&Digest>,
    ) -> Result<Page<Referrer>> {
        self.list_referrers(repository, (subject, artifact_type, true), n, after)
            .await
    }

    /// The same without annotations, which take most of the room.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn bare_referrers(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
        artifact_type: Option<&str>,
        n: usize,
        after: Option<&Digest>,
    ) -> Result<Page<Referrer>> {
        self.list_referrers(repository, (subject, artifact_type, false), n, after)
            .await
    }

    /// As many of them as a list of about so many bytes has room for, one at least.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn referrers_within(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
        most: usize,
    ) -> Result<Page<Referrer>> {
        let (mut items, mut bytes): (Vec<Referrer>, usize) = (Vec::new(), 0);
        loop {
            let after = items.last().map(|last| last.digest.clone());
            let page = self.referrers(repository, subject, None, STEP, after.as_ref());
            let page = page.await?;
            for item in page.items {
                bytes = bytes.saturating_add(listed_size(&item));
                if bytes > most && !items.is_empty() {
                    return Ok(Page { items, next: true });
                }
                items.push(item);
            }
            if !page.next {
                return Ok(Page { items, next: false });
            }
        }
    }

    /// The subjects of a repository to which manifests of this artifact type refer, those first to which the newest of them refer. They
    /// need not be here.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn subjects_of_type(
        &self,
        repository: &RepositoryName,
        artifact_type: &str,
        n: usize,
    ) -> Result<Vec<Digest>> {
        let (repository, artifact_type) = (repository.clone(), artifact_type.to_owned());
        self.read_records(
            "list the subjects of artifacts",
            move |tx| match repositories::find(tx, &repository)? {
                Some(id) => referrers::subjects_of_type(tx, id, &artifact_type, n),
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    /// A manifest that another one refers to, by the beginning of its digest, if there is one.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn subject_beginning(
        &self,
        repository: &RepositoryName,
        beginning: &str,
    ) -> Result<Option<Digest>> {
        let (repository, beginning) = (repository.clone(), beginning.to_owned());
        self.read_records("find a subject", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => referrers::subject_beginning(tx, id, &beginning),
                None => Ok(None),
            }
        })
        .await
    }

    async fn list_referrers(
        &self,
        repository: &RepositoryName,
        (subject, artifact_type, annotated): (&Digest, Option<&str>, bool),
        n: usize,
        after: Option<&Digest>,
    ) -> Result<Page<Referrer>> {
        let (repository, subject, after) = (repository.clone(), subject.clone(), after.cloned());
        let artifact_type = artifact_type.map(str::to_owned);
        self.read_records("list referrers", move |tx| {
            let Some(id) = repositories::find(tx, &repository)? else {
                return Ok(Page::cut(Vec::new(), n));
            };
            let listing = Listing {
                subject: Some(&subject),
                artifact_type: artifact_type.as_deref(),
                annotated,
            };
            referrers::list(tx, id, &listing, n, after.as_ref())
        })
        .await
    }
}

/// About how many bytes it takes in a list.
fn listed_size(item: &Referrer) -> usize {
    let annotations = item.annotations.iter();
    let lengths = annotations.map(|(name, value)| 8 + name.len() + value.len());
    256 + item.artifact_type.as_ref().map_or(0, String::len) + lengths.sum::<usize>()
}

fn whole(found: Option<ManifestWithin>) -> Option<Manifest> {
    match found {
        Some(ManifestWithin::Whole(manifest)) => Some(manifest),
        // No manifest has so many bytes.
        Some(ManifestWithin::Larger(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::config::StoreConfig;
    use crate::model::Reference;
    use xebec_objects::Algorithm;

    const REFERENCES: usize = 1000;

    fn naming(references: impl Iterator<Item = usize>) -> NewManifest {
        let content = "an index";
        let references = references.map(|number| Reference {
            kind: ReferenceKind::Manifest,
            digest: Digest::of(Algorithm::Sha256, number.to_string().as_bytes()),
            required: true,
        });
        NewManifest {
            digest: Digest::of(Algorithm::Sha256, content.as_bytes()),
            media_type: "application/vnd.oci.image.index.v1+json".to_owned(),
            content: content.into(),
            references: references.collect(),
            subject: None,
            artifact_type: None,
            annotations: BTreeMap::new(),
            immutable: Vec::new(),
            is_pushed: true,
        }
    }

    /// SQLite has one writer: a manifest with thousands of references to nothing must not keep pushes waiting.
    #[tokio::test(flavor = "multi_thread")]
    async fn references_to_nothing_are_refused_while_somebody_else_writes() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreConfig::new(directory.path())).await.unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let other = store.clone();
        let writing = tokio::spawn(async move {
            let hold = move |_: &mut dyn crate::database::Transaction| {
                begun.send(()).unwrap();
                let _ = may_end.recv_timeout(Duration::from_secs(60));
                Ok(())
            };
            other.write_records("hold the writer", hold).await
        });
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap())
            .await
            .unwrap();
        let name: RepositoryName = "app".parse().unwrap();
        // Each of them twice: each is looked up, and named, once.
        let many = naming((0..REFERENCES).chain(0..REFERENCES));
        let refused = tokio::time::timeout(Duration::from_secs(30), store.put_manifest(&name, &many, &[]));
        let refused = refused.await.expect("it waits for the writer").unwrap_err();
        let StoreError::MissingReferences { missing, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(missing.len(), REFERENCES);
        // The writer is held: few references are looked up by it.
        let few = naming(0..3);
        let waits = tokio::time::timeout(Duration::from_millis(300), store.put_manifest(&name, &few, &[]));
        assert!(waits.await.is_err(), "the writer is free");
        end.send(()).unwrap();
        writing.await.unwrap().unwrap();
    }
}

//! Manifests: pushed, found, deleted; and who refers to whom.

use crate::digest::Digest;
use crate::error::{Result, StoreError};
use crate::model::{IsHeld, Manifest, NewManifest, Page, PutManifest, ReferenceKind, Referrer, TagRecord};
use crate::name::{RepositoryName, Tag};
use crate::records::manifests::{self, Refusal};
use crate::records::referrers::{self, Listing};
use crate::records::{repositories, tags};
use crate::store::{Store, now};

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
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records("find a manifest", move |tx| {
            manifests::find(tx, &repository, &digest)
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
            match repositories::find(tx, &repository)? {
                Some(id) => manifests::exists(tx, id, &digest),
                None => Ok(false),
            }
        })
        .await
    }

    /// The manifest that a tag names.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tagged_manifest(&self, repository: &RepositoryName, tag: &Tag) -> Result<Option<Manifest>> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.read_records("find the manifest of a tag", move |tx| {
            manifests::find_tagged(tx, &repository, &tag)
        })
        .await
    }

    /// What a manifest names; empty if there is none.
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

    /// Deletes a manifest and the tags that name it; `false` if the repository has none. Blobs that it alone names go with a
    /// collection.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn delete_manifest(&self, repository: &RepositoryName, digest: &Digest) -> Result<bool> {
        self.delete_manifest_unless(repository, digest, None).await
    }

    /// The same, if no tag that is held leads to it, which names it or an index above it. That is decided in the transaction that deletes.
    ///
    /// # Errors
    /// If a tag holds it, or the database fails.
    pub async fn delete_manifest_unless(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        is_held: Option<IsHeld>,
    ) -> Result<bool> {
        let (name, digest) = (repository.clone(), digest.clone());
        let deleted = self.write_records("delete a manifest", move |tx| {
            let Some(id) = repositories::find(tx, &name)? else {
                return Ok(Ok(false));
            };
            let holding = |is_held| tags::holding(tx, id, &digest, is_held);
            match is_held.as_deref().map_or(Ok(None), holding)? {
                Some(tag) => Ok(Err(tag)),
                None => manifests::delete(tx, id, &digest).map(Ok),
            }
        });
        deleted.await?.map_err(|tag| held_by(repository, tag))
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

/// What was to go, and a tag that leads to it.
pub(super) fn held_by(repository: &RepositoryName, tag: TagRecord) -> StoreError {
    StoreError::ImmutableTag {
        repository: repository.clone(),
        tag: tag.name,
        digest: tag.digest,
    }
}

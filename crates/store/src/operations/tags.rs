//! Tags and repositories: found, listed, deleted.

use crate::error::Result;
use crate::model::{Chosen, Page, TagRecord, Usage};
use crate::name::{RepositoryName, Tag};
use crate::records::{repositories, tags};
use crate::store::Store;
use xebec_objects::Digest;

/// Names that are read at once where not all of them are wanted.
const STEP: usize = 1000;

impl Store {
    /// A tag, and the digest of the manifest that it names.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tag(&self, repository: &RepositoryName, tag: &Tag) -> Result<Option<TagRecord>> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.read_records("find a tag", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => tags::find(tx, id, &tag),
                None => Ok(None),
            }
        })
        .await
    }

    /// The tags of a repository after one, in the order of their bytes; `None` if there is no such repository.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tags(
        &self,
        repository: &RepositoryName,
        n: usize,
        after: Option<&str>,
    ) -> Result<Option<Page<TagRecord>>> {
        let (repository, after) = (repository.clone(), after.map(str::to_owned));
        let found = self
            .read_records("list tags", move |tx| {
                let Some(id) = repositories::find(tx, &repository)? else {
                    return Ok(None);
                };
                let found = tags::list(tx, id, n.saturating_add(1), after.as_deref())?;
                let is_there = !found.is_empty() || repositories::has_content(tx, id)?;
                Ok(is_there.then_some(found))
            })
            .await?;
        Ok(found.map(|found| Page::cut(found, n)))
    }

    /// The tags that name a manifest, `n` at most, in the order of their bytes.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tags_of(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        n: usize,
    ) -> Result<Vec<TagRecord>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records(
            "find the tags of a manifest",
            move |tx| match repositories::find(tx, &repository)? {
                Some(id) => tags::of_manifest(tx, id, &digest, n),
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    /// How many tags a repository has, and when one of them was set last. `n` are looked at: if there are as many, there may be more.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn tag_summary(&self, repository: &RepositoryName, n: usize) -> Result<(u64, Option<u64>)> {
        let repository = repository.clone();
        self.read_records("count tags", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => tags::summary(tx, id, n),
                None => Ok((0, None)),
            }
        })
        .await
    }

    /// Deletes a tag, not the manifest that it names; `false` if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn delete_tag(&self, repository: &RepositoryName, tag: &Tag) -> Result<bool> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.write_records("delete a tag", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => tags::delete(tx, id, &tag),
                None => Ok(false),
            }
        })
        .await
    }

    /// The repositories after one that have a manifest or a blob, in the order of their bytes.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn repositories(&self, n: usize, after: Option<&str>) -> Result<Page<RepositoryName>> {
        let after = after.map(str::to_owned);
        let found = self
            .read_records("list repositories", move |tx| {
                repositories::list(tx, n.saturating_add(1), after.as_deref())
            })
            .await?;
        Ok(Page::cut(found, n))
    }

    /// Of the repositories after one, the first `n` that `is_wanted` lets through. So that a list of which little is wanted costs no more
    /// than others, only `look_at` names are looked at, but one at least: there may be fewer than `n` then, or none, though more follow.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn choose_repositories(
        &self,
        n: usize,
        after: Option<&str>,
        look_at: usize,
        is_wanted: impl Fn(&RepositoryName) -> bool,
    ) -> Result<Chosen> {
        let mut chosen = Chosen::default();
        let mut left = look_at.max(1);
        // Where all are wanted, one more than `n` says whether there is another page.
        let mut step = n.saturating_add(1);
        let mut last: Option<RepositoryName> = None;
        while n > 0 && left > 0 {
            let from = last.as_ref().map(RepositoryName::as_str).or(after);
            let page = self.repositories(step.min(left), from).await?;
            left -= page.items.len();
            step = STEP;
            for name in page.items {
                if is_wanted(&name) {
                    if chosen.items.len() == n {
                        chosen.next = chosen.items.last().cloned();
                        return Ok(chosen);
                    }
                    chosen.items.push(name.clone());
                }
                last = Some(name);
            }
            if !page.next {
                return Ok(chosen);
            }
        }
        chosen.next = last;
        Ok(chosen)
    }

    /// The room that the repository of that name and those below it take up; all, if `prefix` is empty.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn usage(&self, prefix: &str) -> Result<Usage> {
        let prefix = prefix.trim_end_matches('/').to_owned();
        self.read_records("add up what repositories take", move |tx| {
            repositories::usage(tx, &prefix)
        })
        .await
    }
}

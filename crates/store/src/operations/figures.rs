//! Figures of a store's contents, and whether its engines answer, for those who watch it. Watchers ask often: sums over all records are
//! read again only now and then, in the background, and the object store is asked once in some seconds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::database::{DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::model::figures::{Sums, Transactions, Waiting};
use crate::name::RepositoryName;
use crate::records::{blobs, dedup, figures, repositories};
use crate::space::{RepositorySpace, Space};
use crate::store::Store;

/// Sums over all records are read again after this time, and no sooner.
const SUMS: Duration = Duration::from_secs(300);
/// The manifests that wait to be indexed are counted again after this time.
const WAITING: Duration = Duration::from_secs(10);
/// The room that everything takes up is added up again after this time.
const SPACE: Duration = Duration::from_secs(60);
/// Of a repository with more blobs, nobody adds up their room while somebody waits.
const MOST_BLOBS: usize = 10_000;
/// Whether the object store answers is found out again after this time.
const ANSWERED: Duration = Duration::from_secs(5);
/// An object store that does not answer within this time does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A key that no object has.
const NO_OBJECT: &str = "nothing";

impl Store {
    /// The sums of the store's contents when they were last read; `None` until they were. This waits for nothing.
    pub fn sums(&self) -> Option<Sums> {
        let (last, is_old) = self.inner.sums.get(SUMS);
        if is_old {
            let store = self.clone();
            self.read_behind(figures::sums, move |sums| store.inner.sums.set(sums));
        }
        last
    }

    /// The same of what waits to be indexed.
    pub fn waiting(&self) -> Option<Waiting> {
        let (last, is_old) = self.inner.waiting.get(WAITING);
        if is_old {
            let store = self.clone();
            self.read_behind(figures::waiting, move |waiting| store.inner.waiting.set(waiting));
        }
        last
    }

    /// The same of the room that everything takes up: what [`Store::space_of_late`] says, or said. It waits for nothing.
    pub fn last_space(&self) -> Option<Arc<Space>> {
        let (last, is_old) = self.inner.last_space.get(SPACE);
        if is_old {
            let store = self.clone();
            tokio::spawn(async move {
                match store.space_of_late().await {
                    Ok(space) => store.inner.last_space.set(space),
                    Err(error) => tracing::debug!("{error}"),
                }
            });
        }
        last
    }

    /// The room that everything takes up, as it was a minute ago at most: see [`Store::space`]. Of several that ask at the same time, one
    /// reads the records.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn space_of_late(&self) -> Result<Arc<Space>> {
        let read = async { self.space().await.map(Arc::new) };
        self.inner.space.get(SPACE, read).await
    }

    /// The room of a repository's blobs; none if there is no such repository, or if it has more than 10,000 blobs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn repository_space(&self, repository: &RepositoryName) -> Result<Option<RepositorySpace>> {
        let name = repository.clone();
        self.read_records(
            "add up the room of a repository",
            move |tx| match repositories::find(tx, &name)? {
                Some(repository) => dedup::repository_space(tx, repository, MOST_BLOBS),
                None => Ok(None),
            },
        )
        .await
    }

    /// The transactions that read, and those that write, of this process.
    pub fn transactions(&self) -> [(&'static str, Transactions); 2] {
        let (reads, writes) = (*self.inner.reads.lock(), *self.inner.writes.lock());
        [("read", reads), ("write", writes)]
    }

    fn read_behind<T: Send + 'static>(
        &self,
        read: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
        then: impl FnOnce(T) + Send + 'static,
    ) {
        let store = self.clone();
        tokio::spawn(async move {
            match store.read_records("add up what the store has", read).await {
                Ok(read) => then(read),
                Err(error) => tracing::debug!("{error}"),
            }
        });
    }

    /// Whether the database answers now.
    ///
    /// # Errors
    /// If it does not.
    pub async fn database_answers(&self) -> Result<()> {
        self.read_records("see whether the database answers", |tx| {
            tx.first("SELECT 1 FROM repositories LIMIT 1", &[]).map(drop)
        })
        .await
    }

    /// Whether the object store answers, or has done so some seconds ago.
    ///
    /// # Errors
    /// Why it does not, for the log.
    pub async fn objects_answer(&self) -> Result<(), String> {
        let check = async {
            let asked = tokio::time::timeout(PATIENCE, self.ask_objects()).await;
            let answered =
                asked.map_err(|_| format!("the object store does not answer within {PATIENCE:?}"))?;
            answered.map_err(|error| error.to_string())
        };
        // That it does not answer counts for as long.
        let outcome = async { Ok::<_, Infallible>(check.await) };
        let Ok(answered) = self.inner.answered.get(ANSWERED, outcome).await;
        answered
    }

    /// Asks for an object that is there: an access key that may read objects, but not list them, is not told that one is missing.
    async fn ask_objects(&self) -> Result<()> {
        let one = self
            .read_records("find an object", |tx| blobs::any_object(tx))
            .await?;
        let key = one.as_deref().unwrap_or(NO_OBJECT);
        match self.inner.objects.answers(key).await {
            Err(error) if one.is_none() && error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            asked => asked.map_err(|source| StoreError::Object {
                doing: "see whether the object store answers",
                key: key.to_owned(),
                source,
            }),
        }
    }
}

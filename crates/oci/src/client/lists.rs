//! The contents of a registry: its repositories, and a repository's tags, as lists in pages.

use reqwest::Method;
use serde::Deserialize;

use super::Client;
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object, Target};
use crate::reference::Repository;
use crate::transport::headers::next_page;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Place};

/// Names that are asked for at once.
const PAGE: usize = 1000;
/// Longest page. Some registries send all that they have, even if they are asked for less.
const MAX_PAGE: u64 = 16 << 20;
/// Most pages of one list.
const MAX_PAGES: usize = 10_000;
/// Most memory of one list, in bytes: a million names and more.
const MAX_LIST: usize = 256 << 20;

#[derive(Deserialize)]
struct Page {
    /// Some registries say `null` for none.
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    repositories: Option<Vec<String>>,
}

impl Client {
    /// All tags of a repository, as the registry names them.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<String>, ClientError> {
        let target = self.target(repository, Object::Tags);
        let path = format!("{}/tags/list?n={PAGE}", repository.name());
        self.list(target, path, Scope::pull(repository.name())).await
    }

    /// The names of all repositories of `registry`. Many registries do not tell them.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn catalog(&self, registry: &str) -> Result<Vec<String>, ClientError> {
        let target = Target {
            registry: registry.to_owned(),
            repository: None,
            object: Object::Catalog,
        };
        self.list(target, format!("_catalog?n={PAGE}"), Scope::catalog())
            .await
    }

    async fn list(&self, target: Target, path: String, scope: Scope) -> Result<Vec<String>, ClientError> {
        let (mut names, mut held) = (Vec::new(), 0);
        let mut place = Place::Path(path);
        for _ in 0..MAX_PAGES {
            // Each page has the time of a call.
            let mut failover = self.failover_at_origin(target.clone());
            let ask = Ask::new(Method::GET, place, scope.clone());
            let (page, next) = loop {
                let endpoint = failover.endpoint();
                match failover.limit(self.page(&endpoint, &ask)).await {
                    Ok(page) => break page,
                    Err(fault) => failover.failed(fault).await?,
                }
            };
            failover.succeeded();
            held += page.iter().map(|name| memory(name)).sum::<usize>();
            if held > MAX_LIST {
                return Err(too_long(target, &format!("{MAX_LIST} bytes")));
            }
            names.extend(page);
            match next {
                Some(next) => place = next,
                None => return Ok(names),
            }
        }
        Err(too_long(target, &format!("{MAX_PAGES} pages")))
    }

    async fn page(&self, endpoint: &Endpoint, ask: &Ask) -> Result<(Vec<String>, Option<Place>), Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        if answer.status() != 200 {
            return Err(answer.into_fault().await);
        }
        let next = next_page(answer.url(), answer.headers())?;
        let page: Page = serde_json::from_slice(&answer.body(MAX_PAGE).await?)
            .map_err(|error| Fault::Protocol(format!("the list cannot be read: {error}")))?;
        let names = page.tags.or(page.repositories).unwrap_or_default();
        Ok((names, next.map(Place::Url)))
    }
}

/// Bytes that a name takes in memory.
fn memory(name: &str) -> usize {
    size_of::<String>() + name.len()
}

fn too_long(target: Target, most: &str) -> ClientError {
    ClientError::Failed {
        target: Box::new(target),
        attempts: 1,
        cause: Fault::Protocol(format!("the list has more than {most}")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_empty_name_takes_memory_too() {
        let of = super::memory;
        assert_eq!(of(""), size_of::<String>());
        assert_eq!(of("team/app"), size_of::<String>() + 8);
    }
}

//! What refers to an image in its registry: index artifacts, recordings. A start needs both, so it asks once for all.

use tokio::sync::OnceCell;
use xebec_oci::{Client, ClientError, Descriptor};

use crate::image::resolve::FoundImage;

/// The artifacts that refer to one image.
pub(crate) struct Referrers<'a> {
    client: Client,
    found: &'a FoundImage,
    /// All of them, where one list serves several questions.
    all: Option<OnceCell<Vec<Descriptor>>>,
}

impl<'a> Referrers<'a> {
    /// Asks for one type at a time.
    pub(crate) fn by_type(client: Client, found: &'a FoundImage) -> Self {
        Self {
            client,
            found,
            all: None,
        }
    }

    /// Asks once, for all types.
    pub(crate) fn at_once(client: Client, found: &'a FoundImage) -> Self {
        Self {
            all: Some(OnceCell::new()),
            ..Self::by_type(client, found)
        }
    }

    /// Those of a type. None are an empty list.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub(crate) async fn of_type(&self, artifact_type: &str) -> Result<Vec<Descriptor>, ClientError> {
        let Some(all) = &self.all else {
            return self.ask(Some(artifact_type)).await;
        };
        let all = all.get_or_try_init(|| self.ask(None)).await?;
        let is_wanted = |entry: &&Descriptor| entry.artifact_type.as_deref() == Some(artifact_type);
        Ok(all.iter().filter(is_wanted).cloned().collect())
    }

    async fn ask(&self, artifact_type: Option<&str>) -> Result<Vec<Descriptor>, ClientError> {
        let repository = self.found.reference.repository();
        let asked = self
            .client
            .referrers(repository, &self.found.manifest_digest, artifact_type);
        match asked.await {
            Err(ClientError::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}

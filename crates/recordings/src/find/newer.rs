//! Newer recordings than the one that this host keeps. A start by a kept recording asks the registry for nothing.
//! Recordings that others made or merged since are looked for afterwards, now and then, and serve the next start.

use std::time::Duration;

use tracing::{info, warn};
use xebec_images::found_image::FoundImage;
use xebec_images::referrers::Referrers;
use xebec_images::registry_failure::registry_failure;
use xebec_oci::Client;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::ServiceCommand;

use super::{Choice, Wanted};
use crate::recordings::Recordings;

/// How often a registry is asked at most, for each image.
const LOOK_AGAIN: Duration = Duration::from_secs(10 * 60);
/// How long after a start has begun: the pages that it reads meanwhile are more urgent.
const AFTER: Duration = Duration::from_secs(5);

impl Recordings {
    /// Looks for a newer recording in the background, if it is time to. Must run inside a tokio runtime.
    pub(super) fn look_for_newer(&self, client: &Client, found: &FoundImage, command: &ServiceCommand) {
        if found.offline || !self.kept.is_look_due(found.manifest_digest, LOOK_AGAIN) {
            return;
        }
        let (this, client, found, command) = (
            self.clone(),
            client.without_answers(),
            found.clone(),
            command.clone(),
        );
        tokio::spawn(async move {
            tokio::time::sleep(AFTER).await;
            if let Err(failure) = this.keep_newer(&client, &found, &command).await {
                warn!("newer recordings of {}: {failure}", found.reference);
            }
        });
    }

    /// Keeps the recording of a service that the next start would take if there were no kept ones.
    async fn keep_newer(
        &self,
        client: &Client,
        found: &FoundImage,
        command: &ServiceCommand,
    ) -> Result<(), Failure> {
        let manifest = found.manifest_digest;
        let Some(wanted) = Wanted::new(found, command)? else {
            return Ok(());
        };
        let choice = Choice::new(self, found)?;
        let referrers = Referrers::by_type(client.clone(), found.reference.repository(), manifest);
        let listed = choice.fetch(client, &referrers).await;
        let listed = listed.map_err(|error| registry_failure(&error))?;
        let kept = self.kept.list(manifest);
        let is_kept = |name| kept.iter().any(|kept| kept.name == name);
        let both = listed.iter().map(|(listed, _)| listed).chain(&kept).cloned();
        let (Some(best), _) = choice.best(&wanted, both) else {
            return Ok(());
        };
        let new = listed
            .iter()
            .find(|(listed, _)| listed.name == best.name && !is_kept(listed.name));
        let Some((_, bytes)) = new else {
            return Ok(());
        };
        info!(recording = %best.name, image = %found.reference, "a newer recording serves the next start");
        self.kept.keep(manifest, best.name, bytes, &best.evidence, None)
    }
}

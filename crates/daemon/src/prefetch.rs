//! Brings in what services of an image read at their start, before one of them is started: for `xebec prefetch`, and for the images
//! that `daemon.toml` lists.

use std::sync::Arc;

use xebec_format::digest::Digest;
use xebec_images::images::Report;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{
    Completion, ImageRequest, Loaded, Prefetch, Prefetched, PrefetchedService, PullPolicy, Reply,
    ServiceCommand,
};
use xebec_recordings::summary::{RecordedService, RuntimeImages as RecordedImages};

use crate::completion::Completions;
use crate::preparation::Preparation;
use crate::runtime_images::RuntimeImages;
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;

/// Services of one image. Any user who may push to a repository can attach recordings to its images.
const MOST_SERVICES: usize = 64;
/// How often it is begun anew because the tag has moved meanwhile.
const ROUNDS: usize = 3;

/// Brings in what services read at their start.
pub(crate) struct Prefetches {
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) runtime_images: Arc<RuntimeImages>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) stopping: Arc<Stopping>,
}

impl Prefetches {
    /// Brings in the start-up pages of the services that are wanted, and all of the image if that is.
    pub(crate) async fn prefetch(&self, wanted: &Prefetch, report: &Report) -> Result<Prefetched, Failure> {
        let prefetched = self.stopping.unless_told(self.bring(wanted, report)).await;
        self.cleanup.forget_unused();
        prefetched
    }

    /// The services of an image that were recorded. Their recordings are kept here, as far as they may be used.
    pub(crate) async fn recorded(
        &self,
        image: &ImageRequest,
        report: &Report,
    ) -> Result<RecordedImages, Failure> {
        let recordings = &self.preparation.recordings;
        recordings.keep_runtime_images(image, report).await
    }

    async fn bring(&self, wanted: &Prefetch, report: &Report) -> Result<Prefetched, Failure> {
        for _ in 0..ROUNDS {
            let listed = self.recorded(&wanted.image, report).await?;
            if let Some(prefetched) = self.bring_listed(wanted, listed, report).await? {
                return Ok(prefetched);
            }
        }
        let message = format!(
            "{} leads to another image again and again; try again when it does not",
            wanted.image.reference
        );
        Err(Failure::new(FailureKind::Registry, message))
    }

    /// Brings in what is wanted of an image whose services are known; `None` if its name leads elsewhere by now.
    async fn bring_listed(
        &self,
        wanted: &Prefetch,
        listed: RecordedImages,
        report: &Report,
    ) -> Result<Option<Prefetched>, Failure> {
        let (services, unrecorded) = chosen(listed.services, &wanted.services);
        let mut request = wanted.image.clone();
        let (mut done, count) = (Vec::new(), services.len() as u64);
        for (number, service) in (0..).zip(services) {
            let what = format!("services of {}", request.reference);
            report(Reply::items(what, number, count));
            let (manifest, loaded) = self.load(&request, &service, report).await?;
            if manifest != listed.manifest {
                return Ok(None);
            }
            // The image is known by its name from now on.
            request.pull = PullPolicy::Missing;
            done.push(PrefetchedService {
                argv: service.argv,
                env: service.env,
                loaded,
                is_refused: service.refused.is_some(),
            });
        }
        if done.is_empty() || wanted.completion.is_some() {
            let manifest = self.bring_image(&request, wanted.completion, report).await?;
            if manifest != listed.manifest {
                return Ok(None);
            }
        }
        Ok(Some(Prefetched {
            manifest: listed.manifest,
            services: done,
            unrecorded,
            complete: wanted.completion.is_some(),
        }))
    }

    /// Brings in the start-up pages of one service, and gives the image's manifest.
    async fn load(
        &self,
        request: &ImageRequest,
        service: &RecordedService,
        report: &Report,
    ) -> Result<(Digest, Loaded), Failure> {
        let command = ServiceCommand {
            entrypoint: Some(service.argv.clone()),
            env: service.env.clone().into_iter().collect(),
            ..ServiceCommand::default()
        };
        let (mut start, _reservation) = self
            .preparation
            .prepare(request, false, Some(&command), report)
            .await?;
        let manifest = start.image.found.manifest_digest;
        self.preparation.keep(&mut start.image).await?;
        let loading = self.runtime_images.begin(&start.image, start.recording).await?;
        let Some(mut loading) = loading else {
            let gone = "its recording is not there any more";
            return Ok((manifest, Loaded::refused(gone.to_owned())));
        };
        let told = loading.outcome.wait_for(Option::is_some).await;
        let loaded = told
            .ok()
            .and_then(|told| told.as_ref().map(|image| image.loaded.clone()));
        let loaded = loaded.unwrap_or_else(|| Loaded::refused("it was broken off".to_owned()));
        Ok((manifest, loaded))
    }

    /// Makes an image known here, and brings all of it in if that is asked for. Gives its manifest.
    pub(crate) async fn bring_image(
        &self,
        request: &ImageRequest,
        completion: Option<Completion>,
        report: &Report,
    ) -> Result<Digest, Failure> {
        let (start, _reservation) = self.preparation.prepare(request, false, None, report).await?;
        let mut prepared = start.image;
        self.preparation.keep(&mut prepared).await?;
        let Some(completion) = completion else {
            return Ok(prepared.found.manifest_digest);
        };
        self.completions
            .complete_image(
                &self.preparation.images,
                request,
                &mut prepared,
                completion,
                report,
            )
            .await?;
        Ok(prepared.found.manifest_digest)
    }
}

/// The services that are wanted, each once by its newest recording that may be used: all if nothing is said, or those whose command
/// lines begin with one of these texts; and the texts with which none begins.
fn chosen(listed: Vec<RecordedService>, wanted: &[String]) -> (Vec<RecordedService>, Vec<String>) {
    let begins = |service: &RecordedService, text: &str| begins_with(&service.argv.join(" "), text);
    let is_unrecorded = |text: &&String| !listed.iter().any(|service| begins(service, text));
    let unrecorded = wanted.iter().filter(is_unrecorded).cloned().collect();
    let is_wanted =
        |service: &RecordedService| wanted.is_empty() || wanted.iter().any(|text| begins(service, text));
    let mut services: Vec<RecordedService> = Vec::new();
    for service in listed.into_iter().filter(is_wanted) {
        let same = |other: &RecordedService| other.argv == service.argv && other.env == service.env;
        let is_better = |known: &RecordedService| known.refused.is_some() && service.refused.is_none();
        match services.iter().position(same) {
            Some(known) => {
                if let Some(known) = services.get_mut(known).filter(|known| is_better(known)) {
                    *known = service;
                }
            }
            None if services.len() < MOST_SERVICES => services.push(service),
            None => {}
        }
    }
    (services, unrecorded)
}

/// Whether a command line begins with these words.
fn begins_with(line: &str, text: &str) -> bool {
    let rest = line.strip_prefix(text.trim());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn service(line: &str, recorded: u64, refused: bool) -> RecordedService {
        RecordedService {
            recording: Digest::of(line.as_bytes()),
            own: false,
            kept: false,
            in_registry: true,
            trust: None,
            root: None,
            refused: refused.then(|| "not signed".to_owned()),
            argv: line.split(' ').map(str::to_owned).collect(),
            env: BTreeMap::new(),
            probe: String::new(),
            predicted: false,
            recorded,
            runs: 1,
            pages: 1,
            steady_pages: 1,
            stored_bytes: 1,
        }
    }

    fn taken(listed: &[RecordedService], wanted: &[&str]) -> (Vec<(String, u64)>, Vec<String>) {
        let wanted: Vec<String> = wanted.iter().map(|&text| text.to_owned()).collect();
        let (chosen, unrecorded) = chosen(listed.to_vec(), &wanted);
        let named = chosen
            .iter()
            .map(|service| (service.argv.join(" "), service.recorded));
        (named.collect(), unrecorded)
    }

    #[test]
    fn services_by_the_begin_of_their_command_lines() {
        let listed = [
            service("web --port 80", 9, true),
            service("web --port 80", 8, false),
            service("web --port 80", 7, false),
            service("webhook", 6, false),
            service("job", 5, true),
        ];
        let all = [("web --port 80", 8), ("webhook", 6), ("job", 5)];
        let all = all.map(|(line, recorded)| (line.to_owned(), recorded));
        assert_eq!(taken(&listed, &[]), (all.to_vec(), vec![]));
        assert_eq!(taken(&listed, &["web"]), (all[..1].to_vec(), vec![]));
        assert_eq!(taken(&listed, &["job", "web --port 80"]).0.len(), 2);
        for unknown in ["we", "web --port 8", "web --port 80 x"] {
            let (services, unrecorded) = taken(&listed, &["job", unknown]);
            assert_eq!(
                (services, unrecorded),
                (all[2..].to_vec(), vec![unknown.to_owned()])
            );
        }
        assert_eq!(taken(&[], &["web"]), (vec![], vec!["web".to_owned()]));
        assert_eq!(taken(&[], &[]), (vec![], vec![]));
        let many: Vec<_> = (0..100)
            .map(|number| service(&format!("job {number}"), 1, false))
            .collect();
        assert_eq!(taken(&many, &[]).0.len(), MOST_SERVICES);
    }
}

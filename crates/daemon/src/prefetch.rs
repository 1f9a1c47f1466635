//! Brings in what services of an image read at their start, before one of them is started: for `xebec prefetch`, and for the images
//! that `daemon.toml` lists.

use std::sync::Arc;
use std::time::Duration;

use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::FillService;
use xebec_format::digest::Digest;
use xebec_images::images::Report;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{
    Completion, ImageRequest, Loaded, Prefetch, Prefetched, PrefetchedService, PullPolicy, Reply,
    ServiceCommand,
};
use xebec_recordings::summary::RecordedService;

use crate::background::Background;
use crate::completion::Completions;
use crate::ending::Ending;
use crate::preparation::Preparation;
use crate::pull_progress::PullProgress;
use crate::quota::Quota;
use crate::runtime_images::RuntimeImages;
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;

/// Services of one image. Any user who may push to a repository can attach recordings to its images.
const MOST_SERVICES: usize = 64;

/// Brings in what services read at their start.
pub(crate) struct Prefetches {
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) runtime_images: Arc<RuntimeImages>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) stopping: Arc<Stopping>,
    pub(crate) background: Background,
}

impl Prefetches {
    /// Brings in the start-up pages of the services that are wanted, and all of the image if that is.
    pub(crate) async fn prefetch(&self, wanted: &Prefetch, report: &Report) -> Result<Prefetched, Failure> {
        self.stopping.unless_told(self.bring(wanted, report)).await
    }

    async fn bring(&self, wanted: &Prefetch, report: &Report) -> Result<Prefetched, Failure> {
        let recordings = &self.preparation.recordings;
        let listed = recordings.runtime_images(&wanted.image, report).await?;
        let services = chosen(listed.services, &wanted.services, &wanted.image.reference)?;
        // The registry has just said which image it is.
        let image = ImageRequest {
            pull: PullPolicy::Missing,
            ..wanted.image.clone()
        };
        let mut done = Vec::new();
        let (count, mut manifest) = (services.len() as u64, None);
        for (number, service) in (0..).zip(services) {
            report(Reply::items(
                format!("services of {}", image.reference),
                number,
                count,
            ));
            let request = match manifest {
                // Its record may lack the reference until it is prepared once.
                None => &wanted.image,
                Some(_) => &image,
            };
            let (found, loaded) = self.load(request, &service, report).await?;
            manifest = Some(found);
            done.push(PrefetchedService {
                argv: service.argv,
                env: service.env,
                loaded,
            });
        }
        let manifest = match (manifest, wanted.completion) {
            (Some(manifest), None) => manifest,
            (known, completion) => {
                let request = known.map_or(&wanted.image, |_| &image);
                self.bring_image(request, completion, report).await?
            }
        };
        self.cleanup.forget_unused();
        Ok(Prefetched {
            manifest,
            services: done,
            complete: wanted.completion.is_some(),
        })
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
        // An ending daemon begins nothing.
        if !self.ending.goes_on()? {
            let ending = "the daemon ends; the same command goes on with the next one";
            return Err(Failure::new(FailureKind::Host, ending));
        }
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
    async fn bring_image(
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
        let keys: Vec<LayerKey> = prepared.layers.iter().map(|layer| layer.key).collect();
        let quota = self.quota.clone();
        let make_room = self
            .background
            .run(move || quota.enforce(quota.missing_bytes(&keys)));
        make_room.await?;
        self.completions
            .fetch_contents(&self.preparation.images, request, &mut prepared)
            .await;
        let count = u32::try_from(prepared.layers.len().max(1)).unwrap_or(u32::MAX);
        let each = Duration::from_secs(completion.deadline_seconds) / count;
        let total = prepared.found.layers.iter().map(|layer| layer.size).sum();
        let mut progress = PullProgress::new(&prepared.found.reference, total, report);
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            let completed = self.completions.complete(&served, each, !each.is_zero());
            progress.layer(&served, layer.index.layer_size, completed).await?;
        }
        Ok(prepared.found.manifest_digest)
    }
}

/// The services that are wanted, each once by its newest recording that may be used: all if nothing is said, or those whose command
/// lines begin with one of these texts.
fn chosen(
    listed: Vec<RecordedService>,
    wanted: &[String],
    image: &str,
) -> Result<Vec<RecordedService>, Failure> {
    let line = |service: &RecordedService| service.argv.join(" ");
    if let Some(unknown) = wanted
        .iter()
        .find(|text| !listed.iter().any(|service| begins_with(&line(service), text)))
    {
        let known: Vec<String> = listed
            .iter()
            .map(|service| format!("{:?}", line(service)))
            .collect();
        let known = match known.is_empty() {
            true => "no service of it is recorded".to_owned(),
            false => format!("recorded are {}", known.join(", ")),
        };
        let message = format!(
            "{image} has no recording of a service whose command line begins with {unknown:?}: {known}; `xebec record` makes one"
        );
        return Err(Failure::new(FailureKind::NotFound, message));
    }
    let mut services: Vec<RecordedService> = Vec::new();
    let is_wanted = |service: &RecordedService| {
        wanted.is_empty() || wanted.iter().any(|text| begins_with(&line(service), text))
    };
    for service in listed.into_iter().filter(is_wanted) {
        let same = |other: &&mut RecordedService| other.argv == service.argv && other.env == service.env;
        match services.iter_mut().find(same) {
            Some(known) if known.refused.is_some() && service.refused.is_none() => *known = service,
            Some(_) => {}
            None if services.len() < MOST_SERVICES => services.push(service),
            None => {}
        }
    }
    Ok(services)
}

/// Whether a command line begins with these words.
fn begins_with(line: &str, text: &str) -> bool {
    let rest = line.strip_prefix(text.trim());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
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
            recorded,
            runs: 1,
            pages: 1,
            steady_pages: 1,
            stored_bytes: 1,
        }
    }

    fn taken(listed: &[RecordedService], wanted: &[&str]) -> Result<Vec<(String, u64)>, Failure> {
        let wanted: Vec<String> = wanted.iter().map(|&text| text.to_owned()).collect();
        let chosen = chosen(listed.to_vec(), &wanted, "app:1")?;
        Ok(chosen
            .iter()
            .map(|service| (service.argv.join(" "), service.recorded))
            .collect())
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
        assert_eq!(taken(&listed, &[]).unwrap(), all);
        assert_eq!(taken(&listed, &["web"]).unwrap(), all[..1]);
        assert_eq!(taken(&listed, &["job", "web --port 80"]).unwrap().len(), 2);
        for unknown in ["we", "web --port 8", "web --port 80 x"] {
            let failure = taken(&listed, &["job", unknown]).unwrap_err();
            assert_eq!(failure.kind, FailureKind::NotFound);
            assert!(
                failure.message.contains(unknown) && failure.message.contains("webhook"),
                "{failure}"
            );
        }
        let failure = taken(&[], &["web"]).unwrap_err();
        assert!(failure.message.contains("xebec record"), "{failure}");
        assert_eq!(taken(&[], &[]).unwrap(), []);
        let many: Vec<_> = (0..100)
            .map(|number| service(&format!("job {number}"), 1, false))
            .collect();
        assert_eq!(taken(&many, &[]).unwrap().len(), MOST_SERVICES);
    }
}

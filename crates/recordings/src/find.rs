//! Finds the recording by which a service is started: one that this host keeps, else one of those that the image's
//! registry lists.

mod newer;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tracing::{debug, warn};
use xebec_artifact::recording::{self, RUNTIME_IMAGE_TYPE};
use xebec_container::{ImageConfig, RunError};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::limits::MAX_RECORDING;
use xebec_format::runtime_image::{Recording, Service, ServiceKey};
use xebec_images::background_write::BackgroundWrite;
use xebec_images::facts;
use xebec_images::found_image::FoundImage;
use xebec_images::images::Images;
use xebec_images::referrers::Referrers;
use xebec_images::registry_failure::registry_failure;
use xebec_images::signatures;
use xebec_kernel::clock::seconds_since_1970;
use xebec_oci::{Client, ClientError, Descriptor};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, ServiceCommand};
use xebec_trust::{Evidence, Listing, Policy, Refusal, RepositoryName, Root};

use crate::recording_store::{KeptRecording, KeptRecordings};
use crate::recordings::Recordings;

/// Recordings of one image that are looked at. Any user who may push can attach any number; one who hides a good one behind
/// many makes a start slower, never wrong.
const MAX_RECORDINGS: usize = 32;
/// Recordings that are fetched at the same time.
const AT_A_TIME: usize = 4;
/// Encoded recordings of one image that are looked at, in bytes: a thousand of ordinary size.
const MAX_TOTAL: usize = 16 << 20;
/// How long a registry that had no recording is not asked for one again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(10 * 60);

/// The recording by which a service is started.
#[derive(Clone, Debug)]
pub struct FoundRecording {
    /// Its name; see [`KeptRecording::name`].
    pub name: Digest,
    /// The recording.
    pub recording: Recording,
    /// The service in it.
    pub service: Service,
    /// Whether that is the very service that was asked for. If it is not, it stands for a command that is not known yet.
    pub is_exact: bool,
    /// Other services of the image that are in it. They follow, if it is not known what will run.
    pub rest: Vec<Service>,
    /// The root of trust by which it was admitted.
    pub root: Root,
    /// The evidence for it.
    pub evidence: Evidence,
    /// Its own zone, if this host has it.
    pub zone: Option<PathBuf>,
}

/// A clock may be ahead by that much, in seconds.
const CLOCKS_APART: u64 = 24 * 60 * 60;

/// When a service was recorded, in seconds since 1970; long ago if that is not yet, so that nobody's clock puts a recording
/// before all others for ever.
pub(super) fn date(service: &Service) -> u64 {
    let is_past = service.recorded <= seconds_since_1970() + CLOCKS_APART;
    if is_past { service.recorded } else { 0 }
}

/// A service that is to be started, as recordings name services.
struct Wanted {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    /// See [`ServiceCommand::is_said_later`].
    is_said_later: bool,
}

impl Wanted {
    /// `None` if no command is given.
    fn new(found: &FoundImage, command: &ServiceCommand) -> Result<Option<Self>, Failure> {
        let config = ImageConfig::from_blob(&found.config_bytes)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let argv =
            match xebec_container::command_line(&config, command.entrypoint.as_deref(), &command.command) {
                Err(RunError::NoCommand) if command.is_said_later => Vec::new(),
                Err(RunError::NoCommand) => return Ok(None),
                argv => argv.map_err(|error| Failure::new(FailureKind::Usage, error))?,
            };
        let image = config.env.iter().filter_map(|text| text.split_once('='));
        let image = image.map(|(name, value)| (name.to_owned(), value.to_owned()));
        // The user's come last, and the last one counts.
        let env = image.chain(command.env.iter().cloned()).collect();
        Ok(Some(Self {
            argv,
            env,
            is_said_later: command.is_said_later,
        }))
    }

    fn is(&self, key: &ServiceKey) -> bool {
        self.argv == key.argv && self.has_variables(key)
    }

    fn has_variables(&self, key: &ServiceKey) -> bool {
        let value = |name: &str| {
            self.env
                .iter()
                .rfind(|(other, _)| other == name)
                .map(|(_, value)| value)
        };
        key.env.iter().all(|(name, wanted)| value(name) == Some(wanted))
    }

    /// The service in a recording; the one with the most variables if several fit.
    fn service_in<'a>(&self, recording: &'a Recording) -> Option<&'a Service> {
        let fitting = recording.services.iter().filter(|service| self.is(&service.key));
        fitting.max_by_key(|service| service.key.env.len())
    }

    /// The service in a recording. If it is not known yet what will run and the image's own command is not in it, the one that is
    /// most like that command: the words that both begin with count first, then variables, then that it was recorded and not predicted,
    /// then which was recorded last. Services of one merge are equally new, and their words decide.
    fn service_or_default<'a>(&self, recording: &'a Recording) -> Option<&'a Service> {
        let exact = self.service_in(recording);
        if exact.is_some() || !self.is_said_later {
            return exact;
        }
        let all = recording.services.iter();
        all.max_by_key(|service| {
            let key = &service.key;
            let likeness = (self.likeness(key), self.has_variables(key));
            (likeness, !service.is_predicted(), date(service), &key.argv)
        })
    }

    /// How good an admitted service is for this one: the very service first, then its root of trust, then how like it is. Of equals, one
    /// that was recorded is better than one that is predicted, however new.
    fn rank(&self, service: &Service, root: Root) -> impl Ord + use<> {
        let key = &service.key;
        let likeness = (self.likeness(key), self.has_variables(key));
        let is_real = !service.is_predicted();
        let argv = key.argv.clone();
        (self.is(key), root, likeness, is_real, date(service), argv)
    }

    /// How many words of a command are the first ones of the one that is wanted.
    fn likeness(&self, key: &ServiceKey) -> usize {
        let same = self.argv.iter().zip(&key.argv);
        same.take_while(|(own, other)| own == other).count()
    }
}

impl Recordings {
    /// The recording by which a service of an image is started; `None` when there is none, with the reason if there is
    /// one that may not be used. A recording that this host keeps suffices if its root of trust is as strong as those of all layers;
    /// otherwise the registry may know a better one.
    ///
    /// # Errors
    /// When the image's configuration or the policy cannot be read. An error of the registry is no failure: the
    /// start is lazy then, as it is without a recording.
    pub(crate) async fn find_recording(
        &self,
        client: &Client,
        found: &FoundImage,
        referrers: &Referrers,
        command: &ServiceCommand,
    ) -> Result<Result<(FoundRecording, BackgroundWrite), Option<String>>, Failure> {
        let Some(wanted) = Wanted::new(found, command)? else {
            return Ok(Err(None));
        };
        let choice = Choice::new(self, found)?;
        let needed = choice.needed(&self.images);
        let kept = self.kept.list(found.manifest_digest);
        let (chosen, refused) = choice.best(&wanted, kept.iter().cloned());
        let is_good = |chosen: &FoundRecording| chosen.is_exact && chosen.root >= needed;
        let suffices = chosen.as_ref().is_some_and(is_good);
        let asked = self.kept.asked(found.manifest_digest);
        if suffices {
            self.look_for_newer(client, found, command);
        }
        if suffices || found.offline || asked.is_some_and(|ago| ago < ASK_AGAIN) {
            return Ok(chosen
                .map(|chosen| (chosen, BackgroundWrite::default()))
                .ok_or(refused));
        }
        let listed = match referrers.is_in_vain() {
            true => Vec::new(),
            false => choice.fetch(client, referrers).await.unwrap_or_else(|error| {
                warn!("recordings of {}: {error}", found.reference);
                Vec::new()
            }),
        };
        let both = listed.iter().map(|(listed, _)| listed.clone()).chain(kept);
        let (chosen, refused) = choice.best(&wanted, both);
        if !chosen.as_ref().is_some_and(is_good) {
            self.kept.note_asked(found.manifest_digest);
        }
        let Some(chosen) = chosen else {
            return Ok(Err(refused));
        };
        let new = listed.into_iter().find(|(kept, _)| kept.name == chosen.name);
        let keeping = new.map(|(_, bytes)| {
            let (kept, unsynced) = (self.kept.clone(), self.unsynced().clone());
            let (manifest, name, evidence) = (found.manifest_digest, chosen.name, chosen.evidence.clone());
            BackgroundWrite::begin(move || {
                kept.keep_soon(manifest, name, &bytes, &evidence, None)?;
                unsynced.add(manifest, name);
                Ok(())
            })
        });
        Ok(Ok((chosen, keeping.unwrap_or_default())))
    }
}

impl Recordings {
    /// All recordings of an image, kept here or listed by its registry, each with what it rests on or why it is refused.
    ///
    /// # Errors
    /// When the policy cannot be read, or the registry does not answer.
    pub async fn recordings_of(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
    ) -> Result<Vec<(KeptRecording, Result<Root, Refusal>)>, Failure> {
        self.listed_recordings(request, found, false).await
    }

    /// The same; those that the registry lists and that may be used are kept here, if `keep`, so that starts find them without it.
    pub(crate) async fn listed_recordings(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        keep: bool,
    ) -> Result<Vec<(KeptRecording, Result<Root, Refusal>)>, Failure> {
        let choice = Choice::new(self, found)?;
        let mut all = self.kept.list(found.manifest_digest);
        if !found.offline {
            let client = self.images.clients().get(request.docker_config.as_deref())?;
            let repository = found.reference.repository();
            let referrers = Referrers::by_type(client.clone(), repository, found.manifest_digest);
            let listed = choice.fetch(&client, &referrers).await;
            let listed = listed.map_err(|error| registry_failure(&error))?;
            for (listed, bytes) in listed {
                if keep && choice.root(&listed.evidence).is_ok() {
                    let (kept, manifest) = (&self.kept, found.manifest_digest);
                    kept.keep_soon(manifest, listed.name, &bytes, &listed.evidence, None)?;
                    self.unsynced().add(manifest, listed.name);
                }
                if all.iter().all(|kept| kept.name != listed.name) {
                    all.push(listed);
                }
            }
        }
        let judged = all.into_iter().map(|kept| {
            let root = choice.root(&kept.evidence);
            (kept, root)
        });
        Ok(judged.collect())
    }
}

/// The context in which one of an image's recordings is chosen.
struct Choice<'a> {
    kept: &'a KeptRecordings,
    found: &'a FoundImage,
    policy: Policy,
    repository: RepositoryName,
}

impl<'a> Choice<'a> {
    fn new(recordings: &'a Recordings, found: &'a FoundImage) -> Result<Self, Failure> {
        let repository = facts::repository_name(found.reference.repository())?;
        Ok(Self {
            kept: &recordings.kept,
            found,
            policy: recordings.images.policy()?,
            repository,
        })
    }

    /// The root of trust of a recording, for the image.
    fn root(&self, evidence: &Evidence) -> Result<Root, Refusal> {
        evidence.root(&self.policy, &self.repository, self.found.naming())
    }

    /// The admitted recording with the strongest root, of equals the one most like the wanted service, then one that is not predicted, then
    /// the newest; and why
    /// one that fits was refused. One of the very service comes before all that are not.
    fn best(
        &self,
        wanted: &Wanted,
        kept: impl IntoIterator<Item = KeptRecording>,
    ) -> (Option<FoundRecording>, Option<String>) {
        let mut refused = None;
        let mut fitting = Vec::new();
        for kept in kept {
            let Some(service) = wanted.service_or_default(&kept.recording).cloned() else {
                continue;
            };
            let others = kept.recording.services.iter().filter(|other| **other != service);
            let rest = match wanted.is_said_later {
                true => others.cloned().collect(),
                false => Vec::new(),
            };
            match self.root(&kept.evidence) {
                Ok(root) => fitting.push(FoundRecording {
                    name: kept.name,
                    is_exact: wanted.is(&service.key),
                    rest,
                    service,
                    root,
                    evidence: kept.evidence,
                    zone: kept.zone,
                    recording: kept.recording,
                }),
                Err(refusal) => refused = Some(format!("a recording of this service is not used: {refusal}")),
            }
        }
        let best = fitting
            .into_iter()
            .max_by_key(|found| wanted.rank(&found.service, found.root));
        (best, refused)
    }

    /// The root of trust that makes a recording as good as any: the strongest that this host knows of a layer's index, or that
    /// keys may make of it.
    fn needed(&self, images: &Images) -> Root {
        let record = images.records().get(self.found.manifest_digest);
        let known = record
            .iter()
            .flat_map(|record| &record.layers)
            .map(|layer| layer.root);
        let signed = self.policy.has_keys_for(&self.repository).then_some(Root::Signed);
        known.chain(signed).max().unwrap_or(Root::Registry)
    }

    /// The recordings that the registry lists, with their bytes.
    async fn fetch(
        &self,
        client: &Client,
        referrers: &Referrers,
    ) -> Result<Vec<(KeptRecording, Vec<u8>)>, ClientError> {
        let manifest = self.found.manifest_digest;
        let listed = referrers.of_type(RUNTIME_IMAGE_TYPE).await?;
        let fetched = listed
            .into_iter()
            .filter(|referrer| !self.kept.is_distrusted(manifest, referrer.digest))
            .take(MAX_RECORDINGS)
            .map(|referrer| self.fetch_one(client, referrers, referrer.digest));
        // A few at a time, and no more than so much in all: recordings that any user can push must not fill the memory.
        let mut fetched = stream::iter(fetched).buffered(AT_A_TIME);
        let (mut found, mut total) = (Vec::new(), 0);
        while let Some(next) = fetched.next().await {
            let Some((kept, bytes)) = next else { continue };
            total += bytes.len();
            if total > MAX_TOTAL {
                warn!("{manifest} has more recordings than Xebec looks at");
                break;
            }
            found.push((kept, bytes));
        }
        Ok(found)
    }

    async fn fetch_one(
        &self,
        client: &Client,
        referrers: &Referrers,
        digest: Digest,
    ) -> Option<(KeptRecording, Vec<u8>)> {
        let passed_over = |problem: &dyn std::fmt::Display| warn!("recording {digest}: {problem}");
        let repository = self.found.reference.repository();
        let fetched = referrers.artifact(digest).await;
        let manifest = fetched.inspect_err(|error| passed_over(error)).ok()?;
        let manifest = manifest.parse().inspect_err(|error| passed_over(error)).ok()?;
        let descriptor = recording::decode(manifest, self.found.manifest_digest)
            .inspect_err(|error| passed_over(error))
            .ok()?;
        let bytes = self
            .recording_bytes(client, &descriptor)
            .await
            .inspect_err(|error| passed_over(error))
            .ok()?;
        let decoded = tokio::task::spawn_blocking(move || (Recording::decode(&bytes), bytes)).await;
        let (recording, bytes) = decoded.inspect_err(|error| passed_over(error)).ok()?;
        let recording = recording.inspect_err(|error| passed_over(error)).ok()?;
        if recording.image != self.found.manifest_digest {
            passed_over(&"it speaks of another image");
            return None;
        }
        let signed = match self.policy.has_keys_for(&self.repository) {
            true => signatures::find(client, repository, &self.repository, &self.policy, digest).await,
            false => None,
        };
        debug!(%digest, services = recording.services.len(), "found a recording");
        let kept = KeptRecording {
            name: digest,
            evidence: Evidence {
                own: false,
                listed: Some(Listing::new(&self.repository)),
                signed,
            },
            recording,
            zone: None,
        };
        Some((kept, bytes))
    }

    async fn recording_bytes(
        &self,
        client: &Client,
        descriptor: &Descriptor,
    ) -> Result<Vec<u8>, ClientError> {
        if let Some(bytes) = descriptor.embedded() {
            return Ok(bytes);
        }
        let repository = self.found.reference.repository();
        let bytes = client.blob(repository, descriptor, MAX_RECORDING).await?;
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn service(argv: &str, recorded: u64, env: &[(&str, &str)]) -> Service {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Service {
            key: ServiceKey {
                argv: words(argv),
                env: env.collect(),
            },
            probe: String::new(),
            recorded,
            runs: 1,
            recorder: String::new(),
            touched: Vec::new(),
        }
    }

    /// Which of these services is taken where the image's own command is the wanted one.
    fn taken(wanted: &str, is_said_later: bool, services: &[Service]) -> Option<String> {
        let wanted = Wanted {
            argv: words(wanted),
            env: vec![("MODE".to_owned(), "fast".to_owned())],
            is_said_later,
        };
        let recording = Recording {
            image: Digest::of(b"image"),
            layers: Vec::new(),
            services: services.to_vec(),
            zeros: Vec::new(),
            zones: Vec::new(),
            segments: Vec::new(),
            indexes: Vec::new(),
        };
        let taken = wanted.service_or_default(&recording)?;
        Some(format!("{} {}", taken.key.argv.join(" "), taken.recorded))
    }

    #[test]
    fn the_image_s_own_command_or_what_is_most_like_it() {
        let all = [
            service("entry worker", 5, &[]),
            service("entry web --port 80", 3, &[]),
            service("entry web", 1, &[]),
            service("sh", 9, &[]),
        ];
        let taken_later = |wanted| taken(wanted, true, &all).unwrap();
        assert_eq!(taken_later("entry web"), "entry web 1");
        assert_eq!(taken_later("entry web --debug"), "entry web --port 80 3");
        assert_eq!(taken_later("entry other"), "entry worker 5");
        // Nothing in common, or nothing known: the last one that was recorded.
        assert_eq!(taken_later("other"), "sh 9");
        assert_eq!(taken_later(""), "sh 9");
        let equally_new = |all: [&str; 2]| taken("", true, &all.map(|argv| service(argv, 1, &[])));
        assert_eq!(equally_new(["b", "a"]), equally_new(["a", "b"]));
        assert_eq!(taken("entry other", false, &all), None);
        assert_eq!(taken("", true, &[]), None);
    }

    #[test]
    fn a_prediction_is_worse_than_what_was_recorded_and_better_than_less_trust() {
        let wanted = |is_said_later| Wanted {
            argv: words("web"),
            env: Vec::new(),
            is_said_later,
        };
        let predicted = |recorded| Service {
            recorder: "xebec-registry 1 predict".to_owned(),
            ..service("web", recorded, &[])
        };
        let ranks = [
            (predicted(1), Root::Signed),
            (service("web", 2, &[]), Root::Registry),
            (service("web", 1, &[]), Root::Registry),
            (predicted(9), Root::Registry),
            (predicted(8), Root::Registry),
        ];
        for is_said_later in [false, true] {
            let wanted = wanted(is_said_later);
            let ranks = ranks.iter().map(|(service, root)| wanted.rank(service, *root));
            assert!(
                ranks
                    .collect::<Vec<_>>()
                    .is_sorted_by(|better, worse| better > worse)
            );
        }
        let other = |name: &str, recorder: &str, recorded| Service {
            recorder: recorder.to_owned(),
            ..service(name, recorded, &[])
        };
        let both = [other("a", "xebec 1 merge", 1), other("b", "xebec 1 predict", 9)];
        assert_eq!(taken("other", true, &both).unwrap(), "a 1");
    }

    #[test]
    fn variables_count_after_words() {
        let all = [
            service("entry web", 1, &[("MODE", "fast")]),
            service("entry web", 2, &[("MODE", "slow")]),
        ];
        assert_eq!(taken("entry web", true, &all).unwrap(), "entry web 1");
        assert_eq!(taken("entry other", true, &all).unwrap(), "entry web 1");
    }

    #[test]
    fn of_several_recordings_variables_count_before_dates() {
        let wanted = Wanted {
            argv: words("entry web"),
            env: vec![("MODE".to_owned(), "fast".to_owned())],
            is_said_later: true,
        };
        // Each is better than the next one.
        let ranks = [
            (service("entry web", 1, &[("MODE", "fast")]), Root::Registry),
            (service("other", 1, &[]), Root::Signed),
            (service("entry web", 1, &[("MODE", "slow")]), Root::Registry),
            (service("entry", 2, &[("MODE", "fast")]), Root::Registry),
            (service("entry", 1, &[("MODE", "fast")]), Root::Registry),
            (service("entry", 9, &[("MODE", "slow")]), Root::Registry),
        ];
        let ranks: Vec<_> = ranks
            .iter()
            .map(|(service, root)| wanted.rank(service, *root))
            .collect();
        assert!(ranks.is_sorted_by(|better, worse| better > worse));
    }
}

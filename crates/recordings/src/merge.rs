//! Makes one recording of all that is known about an image's services: `xebec record --merge`.
//!
//! The contents of the new recording are this host's own word: recordings and profiles only say which pages are wanted
//! ([`crate::merge_pages`]). The pages themselves are read like those of any reader, through a view that is held
//! meanwhile and lets nothing in that was not compared. A segment of an earlier recording is used again only if all
//! of it is the same. Nothing is run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use serde::Serialize;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{PageRun, RecordedLayer, Recording, Service, ServiceKey};
use xebec_images::found_image::FoundImage;
use xebec_images::images::{Images, Report};
use xebec_images::publish::read_key;
use xebec_keeper::client::Daemon;
use xebec_kernel::clock::seconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, Mounted, Reply};

use crate::merge_pages::{Folded, Limit, Numbers, arranged, fold, says_all, standing};
use crate::page_reads;
use crate::profile::{KeptProfile, Profile};
use crate::publish::{Made, Plan, make, numbered};
use crate::record::hold;
use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;

/// Options for the new recording, and how much profiles may add to it.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// Keep it on this host only.
    pub local: bool,
    /// Sign its artifact with the private key in this file.
    pub sign: Option<PathBuf>,
    /// Pages that profiles may add to each service.
    pub limit: Limit,
}

/// The new recording, and its pages in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    /// The image.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The artifact; none if it is kept on this host only.
    pub artifact: Option<Digest>,
    /// The services that are in it.
    pub services: Vec<MergedService>,
    /// The recordings that went into it.
    pub recordings: Vec<Digest>,
    /// The profiles that went into it, and are forgotten now.
    pub profiles: u64,
    /// Pages of all services, each once.
    pub pages: u64,
    /// Pages among them that are all zero, and cost nothing.
    pub zero_pages: u64,
    /// Pages that are in segments of earlier recordings.
    pub reused_pages: u64,
    /// Bytes of pages that were not in the cache and had to be fetched, plain.
    pub brought_bytes: u64,
    /// Size of its own zone, in which the other pages are, in bytes.
    pub zone_bytes: u64,
    /// Size of all its segments, compressed, in bytes.
    pub stored_bytes: u64,
    /// Size of the recording, which says which pages they are, in bytes.
    pub recording_bytes: u64,
    /// Size of the image's layers, compressed, in bytes.
    pub image_bytes: u64,
}

/// A service of a merged recording.
#[derive(Clone, Debug, Serialize)]
pub struct MergedService {
    /// Its command line.
    pub argv: Vec<String>,
    /// Variables that tell it from others.
    pub env: BTreeMap<String, String>,
    /// Its pages.
    pub pages: u64,
    /// Pages that came from profiles.
    pub added: u64,
    /// Pages that profiles have and the limit kept out.
    pub left_out: u64,
    /// Recorded pages that no recent start touched, and that are not in it.
    pub dropped: u64,
    /// How many recordings went into it.
    pub recordings: u64,
    /// How many profiles.
    pub profiles: u64,
}

/// Folds all admitted recordings of an image, and the profiles that this host has of their services, into one recording,
/// keeps it, and pushes it.
///
/// # Errors
/// When there is nothing to merge, when the image cannot be mounted or pages of it cannot be brought in, and as pushing.
pub fn merge(
    daemon: &Daemon,
    recordings: &Recordings,
    runtime: &tokio::runtime::Handle,
    request: &ImageRequest,
    options: &MergeOptions,
    report: &Report,
) -> Result<Merged, Failure> {
    let images = recordings.images();
    let key = options.sign.as_deref().map(read_key).transpose()?;
    let mut found = runtime.block_on(images.resolve(request, report))?;
    images.check_pushed(&found)?;
    let profiles = recordings.profiles().list(found.manifest_digest);
    let admitted = admitted(recordings, runtime, request, &found, report)?;
    if admitted.recordings.is_empty() && profiles.is_empty() {
        return Err(admitted.nothing(&found));
    }
    let (mounted, _view) = hold(daemon, request, "merge", report)?;
    if mounted.manifest != found.manifest_digest {
        return Err(moved(&mounted));
    }
    found.look_up_user(&mounted.path);
    let layers = layers(images, &mounted)?;
    let sources = Sources::new(&admitted.recordings, &profiles, &layers, report);
    sources.check(&found)?;
    let folded = sources.fold(options.limit);
    let services: Vec<Service> = folded.iter().map(|(folded, _)| folded.service.clone()).collect();
    let order = arranged(&services);
    let brought_bytes = page_reads::pages(images, &mounted, &order, report)?;
    let earlier: Vec<Recording> = admitted
        .recordings
        .iter()
        .filter(|kept| kept.zone.is_none())
        .map(|kept| kept.recording.clone())
        .collect();
    let plan = Plan {
        image: found.manifest_digest,
        layers: &mounted.layers,
        services,
        order: order.clone(),
        earlier: &earlier,
        spread: false,
        may_bundle: &recordings.may_bundle(&found, options.local, key.is_some()),
    };
    let total = count(&order) * PAGE_SIZE;
    tell_compressed(report, 0, total);
    let made = make(images.store(), plan)?;
    tell_compressed(report, total, total);
    let mut merged = summary(&found, &made, &folded, &sources, count(&order));
    merged.brought_bytes = brought_bytes;
    let shared = recordings.share(request, &found, made, options.local, key.as_ref(), report);
    merged.artifact = runtime.block_on(shared)?;
    // Not before the recording has what they say.
    let names = folded.iter().flat_map(|(_, source)| &source.profiles);
    recordings
        .profiles()
        .forget(found.manifest_digest, names.map(|(name, _)| name.as_str()))?;
    Ok(merged)
}

fn moved(mounted: &Mounted) -> Failure {
    let message = format!(
        "{} was moved to another image meanwhile; merge it again",
        mounted.reference
    );
    Failure::new(FailureKind::Usage, message)
}

/// Tells how many bytes of pages are compressed; as many as there are, or none.
fn tell_compressed(report: &Report, done: u64, total: u64) {
    report(Reply::bytes("compress pages", done, total));
}

/// The recordings that a start of the image would admit, and why not the others.
struct Admitted {
    recordings: Vec<KeptRecording>,
    refused: Option<String>,
}

impl Admitted {
    /// That there is nothing to merge.
    fn nothing(self, found: &FoundImage) -> Failure {
        match self.refused {
            None => Failure::new(
                FailureKind::NotFound,
                format!(
                    "no service of {} is recorded; run `xebec record`",
                    found.reference
                ),
            ),
            Some(refused) => Failure::new(
                FailureKind::Trust,
                format!("nothing of {} can be merged: {refused}", found.reference),
            ),
        }
    }
}

fn admitted(
    recordings: &Recordings,
    runtime: &tokio::runtime::Handle,
    request: &ImageRequest,
    found: &FoundImage,
    report: &Report,
) -> Result<Admitted, Failure> {
    let judged = runtime.block_on(recordings.recordings_of(request, found))?;
    let (mut recordings, mut refused, mut why) = (Vec::new(), 0u64, None);
    for (kept, root) in judged {
        match root {
            Ok(_) => recordings.push(kept),
            Err(refusal) => {
                refused += 1;
                why = Some(refusal.to_string());
            }
        }
    }
    let refused = why.map(|why| format!("{refused} of its recordings may not be used: {why}"));
    if let (false, Some(text)) = (recordings.is_empty(), refused.clone()) {
        report(Reply::Notice { text });
    }
    Ok(Admitted { recordings, refused })
}

/// The image's layers as its pages are numbered here.
fn layers(images: &Images, mounted: &Mounted) -> Result<Vec<RecordedLayer>, Failure> {
    let keys = numbered(&mounted.layers).into_iter();
    let layers = keys.map(|key| {
        Ok(RecordedLayer {
            layer: key.layer,
            index: key.index,
            data_size: images.store().look(key)?.table().data_size,
        })
    });
    layers.collect()
}

/// The sources for one service: recordings, newest first, and profiles, both by their names and with pages as they are
/// numbered here.
#[derive(Default)]
struct Source {
    recordings: Vec<(Digest, Service)>,
    profiles: Vec<(String, Profile)>,
}

/// Says how many are left out, if any are.
fn notice(report: &Report, count: usize, text: &str) {
    if count > 0 {
        let text = format!("{count} {text}");
        report(Reply::Notice { text });
    }
}

/// The sources for all services.
struct Sources(Vec<Source>);

impl Sources {
    fn new(
        admitted: &[KeptRecording],
        profiles: &[KeptProfile],
        layers: &[RecordedLayer],
        report: &Report,
    ) -> Self {
        let mut sources: Vec<Source> = Vec::new();
        let mut places: HashMap<ServiceKey, usize> = HashMap::new();
        let mut foreign = 0;
        for kept in admitted {
            let Some(numbers) = Numbers::new(&kept.recording.layers, layers) else {
                foreign += 1;
                continue;
            };
            for service in &kept.recording.services {
                let place = *places.entry(service.key.clone()).or_insert_with(|| {
                    sources.push(Source::default());
                    sources.len() - 1
                });
                if let Some(source) = sources.get_mut(place) {
                    source.recordings.push((kept.name, numbers.service(service)));
                }
            }
        }
        notice(
            report,
            foreign,
            "recordings are not merged: they name pages by other layer indexes than this host uses",
        );
        for source in &mut sources {
            source.recordings = standing(std::mem::take(&mut source.recordings), |(_, service)| service);
        }
        // Services that were not recorded, but are known from starts.
        for kept in profiles.iter().filter(|kept| says_all(&kept.profile)) {
            places.entry(kept.profile.service.clone()).or_insert_with(|| {
                sources.push(Source::default());
                sources.len() - 1
            });
        }
        let mut this = Self(sources);
        this.add_profiles(profiles, &places, layers, report);
        this
    }

    /// Adds what starts asked for. `places`: where each service is among the sources.
    fn add_profiles(
        &mut self,
        profiles: &[KeptProfile],
        places: &HashMap<ServiceKey, usize>,
        layers: &[RecordedLayer],
        report: &Report,
    ) {
        let (mut unrecorded, mut foreign) = (0, 0);
        for kept in profiles {
            let place = places.get(&kept.profile.service).copied();
            let source = place.and_then(|place| self.0.get_mut(place));
            match (source, Numbers::new(&kept.profile.layers, layers)) {
                (_, None) => foreign += 1,
                (None, _) => unrecorded += 1,
                (Some(source), Some(numbers)) => {
                    let profile = numbers.profile(&kept.profile);
                    source.profiles.push((kept.name.clone(), profile));
                }
            }
        }
        notice(
            report,
            unrecorded,
            "starts were of services that were not recorded, and do not say all that they read; they are not merged",
        );
        notice(
            report,
            foreign,
            "starts were by other layer indexes than this host uses now; what they asked for is not merged",
        );
    }

    /// The recordings that count.
    fn recordings(&self) -> BTreeSet<Digest> {
        let all = self.0.iter().flat_map(|source| &source.recordings);
        all.map(|(name, _)| *name).collect()
    }

    /// Whether there is more than one recording with all of it.
    fn check(&self, found: &FoundImage) -> Result<(), Failure> {
        let recordings = self.recordings();
        let is_learned = self.0.iter().any(|source| !source.profiles.is_empty());
        let message = match (recordings.first(), recordings.len(), is_learned) {
            (None, _, false) => format!(
                "no recording of {} can be merged; `xebec record` makes one for the indexes that this host uses",
                found.reference
            ),
            (Some(only), 1, false) => format!(
                "nothing to merge: {} has the one recording {}, and no start on this host asked for anything else",
                found.reference,
                only.short()
            ),
            _ => return Ok(()),
        };
        Err(Failure::new(FailureKind::NotFound, message))
    }

    fn fold(&self, limit: Limit) -> Vec<(Folded, &Source)> {
        let now = seconds_since_1970();
        let folded = self.0.iter().filter_map(|source| {
            let recordings = source.recordings.iter().map(|(_, service)| service.clone());
            let profiles = source.profiles.iter().map(|(_, profile)| profile.clone());
            let recordings: Vec<Service> = recordings.collect();
            let profiles: Vec<Profile> = profiles.collect();
            Some((fold(&recordings, &profiles, limit, now)?, source))
        });
        folded.collect()
    }
}

fn count(runs: &[PageRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.pages)).sum()
}

fn summary(
    found: &FoundImage,
    made: &Made,
    folded: &[(Folded, &Source)],
    sources: &Sources,
    pages: u64,
) -> Merged {
    let services = folded.iter().map(|(folded, source)| MergedService {
        argv: folded.service.key.argv.clone(),
        env: folded.service.key.env.clone(),
        pages: folded
            .service
            .touched
            .iter()
            .map(|seen| u64::from(seen.run.pages))
            .sum(),
        added: folded.added,
        left_out: folded.left_out,
        dropped: folded.dropped,
        recordings: source.recordings.len() as u64,
        profiles: source.profiles.len() as u64,
    });
    Merged {
        reference: found.reference.to_string(),
        manifest: found.manifest_digest,
        artifact: None,
        services: services.collect(),
        recordings: sources.recordings().into_iter().collect(),
        profiles: folded
            .iter()
            .map(|(_, source)| source.profiles.len() as u64)
            .sum(),
        pages,
        zero_pages: count(&made.recording.zeros),
        reused_pages: made.reused_pages(),
        brought_bytes: 0,
        zone_bytes: made.zone.len() as u64,
        stored_bytes: made.stored_bytes(),
        recording_bytes: made.encoded.len() as u64,
        image_bytes: found.layers.iter().map(|layer| layer.size).sum(),
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::runtime_image::SeenRun;
    use xebec_trust::Evidence;

    use super::*;

    const LAYER: RecordedLayer = RecordedLayer {
        layer: Digest::from_bytes([1; 32]),
        index: Digest::from_bytes([2; 32]),
        data_size: 1 << 20,
    };

    fn service(name: &str, recorder: &str, first: u64) -> Service {
        let run = PageRun {
            layer: 0,
            first,
            pages: 1,
        };
        Service {
            key: ServiceKey {
                argv: vec![name.to_owned()],
                env: BTreeMap::new(),
            },
            probe: "port 80".to_owned(),
            recorded: 1_700_000_000,
            runs: 1,
            recorder: recorder.to_owned(),
            touched: vec![SeenRun { run, seen: 1 }],
        }
    }

    fn kept(name: &str, services: Vec<Service>) -> KeptRecording {
        KeptRecording {
            name: Digest::of(name.as_bytes()),
            evidence: Evidence::default(),
            recording: Recording {
                image: Digest::of(b"image"),
                layers: vec![LAYER],
                services,
                zeros: Vec::new(),
                zones: Vec::new(),
                segments: Vec::new(),
                indexes: Vec::new(),
            },
            zone: None,
        }
    }

    #[test]
    fn what_was_merged_is_merged_once_where_some_services_are_predicted() {
        let quiet: Report = std::sync::Arc::new(|_| {});
        let sources = |all: &[KeptRecording]| Sources::new(all, &[], &[LAYER], &quiet);
        let mut all = vec![
            kept("recorded", vec![service("web", "xebec 1", 1)]),
            kept(
                "predicted",
                ["web", "job"]
                    .map(|name| service(name, "xebec-registry 1 predict", 2))
                    .to_vec(),
            ),
        ];
        let first = sources(&all);
        assert_eq!(first.recordings().len(), 2);
        let folded = first.fold(Limit::default()).into_iter();
        let services: Vec<Service> = folded.map(|(folded, _)| folded.service).collect();
        let told: Vec<(&str, bool)> = services
            .iter()
            .map(|service| (service.key.argv[0].as_str(), service.is_predicted()))
            .collect();
        assert_eq!(told, [("web", false), ("job", true)]);
        // In whichever order they are listed.
        let merged = kept("merged", services);
        all.push(merged.clone());
        assert_eq!(sources(&all).recordings(), BTreeSet::from([merged.name]));
        all.rotate_right(1);
        assert_eq!(sources(&all).recordings(), BTreeSet::from([merged.name]));
    }
}

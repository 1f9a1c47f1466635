//! A service that was recorded for another version of its image, and not for this one: an image that is built anew has no
//! recordings until somebody records it again. The files of this host tell so; no registry is asked.

use xebec_format::digest::Digest;
use xebec_images::facts::repository_name;
use xebec_images::record::ImageRecord;
use xebec_oci::{Reference, Repository};
use xebec_trust::Listing;

use crate::find::date;
use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;

/// A version of an image for which a service was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierVersion {
    /// Its manifest.
    pub manifest: Digest,
    /// The tag that it has, or had until that named another version, if this host knows it.
    pub tag: Option<String>,
}

impl Recordings {
    /// The version of an image, other than the one of this manifest, for which this command line was recorded last, among the
    /// recordings that this host keeps. Reads each recording of the image's repository: call it only where nobody waits for it.
    pub fn earlier_version(
        &self,
        manifest: Digest,
        repository: &Repository,
        argv: &[String],
    ) -> Option<EarlierVersion> {
        let others = self.kept.images().into_iter().filter(|other| *other != manifest);
        let versions = others.filter_map(|other| {
            let record = self.images.records().get(other);
            let tag = record.as_ref().and_then(|record| tag_in(record, repository));
            let recorded = self.kept.list(other).into_iter().filter_map(|kept| {
                let is_of_it = tag.is_some() || is_listed_in(&kept, repository);
                let services = kept.recording.services.iter();
                let services = services.filter(|service| is_of_it && service.key.argv == argv);
                services.map(date).max()
            });
            let recorded = recorded.max()?;
            let tag = tag.flatten();
            Some((recorded, EarlierVersion { manifest: other, tag }))
        });
        versions
            .max_by_key(|(recorded, _)| *recorded)
            .map(|(_, version)| version)
    }
}

/// Whether a record is of an image of a repository: then the tag by which it was named there, if it was by one.
fn tag_in(record: &ImageRecord, repository: &Repository) -> Option<Option<String>> {
    let names = record.references.iter().chain(&record.former);
    let names = names.filter_map(|name| name.parse::<Reference>().ok());
    let mut own = names.filter(|name| name.repository() == repository).peekable();
    own.peek()?;
    Some(own.find_map(|name| name.tag().map(str::to_owned)))
}

fn is_listed_in(kept: &KeptRecording, repository: &Repository) -> bool {
    let listing = repository_name(repository).map(|name| Listing::new(&name));
    listing.is_ok_and(|listing| kept.evidence.listed == Some(listing))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
pub(crate) mod tests {
    use xebec_format::runtime_image::{Recording, Service, ServiceKey};
    use xebec_protocol::paths::Paths;
    use xebec_trust::Evidence;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// Keeps a recording of a service of an image that has this name.
    pub(crate) fn record(
        recordings: &Recordings,
        image: &[u8],
        name: &str,
        argv: &str,
        recorded: u64,
    ) -> Digest {
        let manifest = Digest::of(image);
        let recording = Recording {
            image: manifest,
            layers: Vec::new(),
            services: vec![Service {
                key: ServiceKey {
                    argv: words(argv),
                    env: Default::default(),
                },
                probe: String::new(),
                recorded,
                runs: 1,
                recorder: String::new(),
                touched: Vec::new(),
            }],
            zeros: Vec::new(),
            zones: Vec::new(),
            segments: Vec::new(),
            indexes: Vec::new(),
        };
        let encoded = recording.encode();
        let kept = recordings.kept();
        kept.keep(
            manifest,
            Digest::of(&encoded),
            &encoded,
            &Evidence::default(),
            None,
        )
        .unwrap();
        name_it(recordings, manifest, name);
        manifest
    }

    fn name_it(recordings: &Recordings, manifest: Digest, name: &str) {
        let record = serde_json::json!({
            "references": [name], "manifest_digest": manifest, "media_type": "", "manifest": "", "config": "", "layers": [],
            "last_used": 1,
        });
        let record: ImageRecord = serde_json::from_value(record).unwrap();
        recordings.images().records().put(record).unwrap();
    }

    #[test]
    fn what_was_recorded_for_an_earlier_version_is_found_by_its_tag_also_when_the_tag_has_moved() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let paths = Paths::create(&at("root"), &at("run")).unwrap();
        let recordings = Recordings::open(&paths).unwrap();
        let repository = Repository::new("r.example", "team/web").unwrap();
        let new = Digest::of(b"new");
        let find = |argv: &str| recordings.earlier_version(new, &repository, &words(argv));
        let version = |manifest, tag: &str| {
            Some(EarlierVersion {
                manifest,
                tag: Some(tag.to_owned()),
            })
        };
        record(&recordings, b"other", "r.example/team/other:1", "nginx -g", 900);
        assert_eq!(find("nginx -g"), None, "of another repository");
        let first = record(&recordings, b"first", "r.example/team/web:1", "nginx -g", 100);
        assert_eq!(find("nginx -g"), version(first, "1"));
        assert_eq!(find("nginx"), None, "another command line");
        let second = record(
            &recordings,
            b"second",
            "r.example/team/web:latest",
            "nginx -g",
            200,
        );
        assert_eq!(find("nginx -g"), version(second, "latest"));
        name_it(&recordings, new, "r.example/team/web:latest");
        assert_eq!(
            find("nginx -g"),
            version(second, "latest"),
            "its name was taken away"
        );
        name_it(&recordings, second, "r.example/team/web:latest");
        let record = recordings.images().records().get(second).unwrap();
        assert!(record.former.is_empty(), "and given back");
    }
}

//! The pages that starts in production asked for: `<root>/runtime/<image manifest>/profiles/`, a file for each start.
//!
//! A **profile** says which pages a start read that its recording did not have, up to its probe, and, where that could be
//! seen, which of those that it had were read at all. `xebec record --merge` makes a better recording of them.
//! They never leave the host, so they are JSON; and nothing is lost with one, so there is a limit to how
//! many are kept, and one that is damaged is passed over. It names pages only: their contents are read elsewhere.

mod files;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{PageRun, RecordedLayer, Recording, SeenRun, Service, ServiceKey};
use xebec_kernel::file::read_limited;
use xebec_kernel::file::{remove_abandoned, write_atomically};

use files::{Name, files, remove_oldest};
use xebec_protocol::failure::{Failure, FailureKind};

/// Largest profile, in bytes: some 70,000 runs. A start of 10,000 pages that had no recording has 3,000.
const MAX_BYTES: u64 = 1 << 20;
/// Most runs of pages in one profile, in either list; more do not fit into [`MAX_BYTES`].
const MAX_RUNS: usize = 1 << 17;
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

/// The pages that one start asked for, up to its probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Digest of the image's manifest (of one platform).
    pub image: Digest,
    /// The layers that pages are named in, each once.
    pub layers: Vec<RecordedLayer>,
    /// The service: the key of the recorded service by which it was started, else its command line and no variables.
    pub service: ServiceKey,
    /// When, in seconds since 1970.
    pub started: u64,
    /// The pages that it read outside of its recording, each once, in the order of first access; neighbours are one run.
    pub missed: Vec<PageRun>,
    /// Which pages of its recording it read, each once, in any order, neighbours as one run; `None` if that could not be seen. Together
    /// with [`Self::missed`] these are all that it read.
    pub touched: Option<Vec<PageRun>>,
}

impl Profile {
    /// Pages, in order, as runs. One that comes again is left out.
    pub fn runs(pages: impl IntoIterator<Item = (u16, u64)>) -> Vec<PageRun> {
        let mut known = std::collections::HashSet::new();
        let mut runs = Vec::new();
        for (layer, first) in pages {
            if known.insert((layer, first)) {
                let pages = 1;
                PageRun { layer, first, pages }.push_onto(&mut runs);
            }
        }
        runs
    }

    /// Whether nothing can be learned from it.
    fn is_empty(&self) -> bool {
        self.missed.is_empty() && self.touched.is_none()
    }

    /// Checks what the types promise, by the rules for recordings: layers and pages each once, runs inside their layer's
    /// data space, command line and variables as Linux could hand them to a program.
    fn check(&self) -> Result<(), String> {
        let touched = self.touched.as_deref().unwrap_or_default();
        for runs in [self.missed.as_slice(), touched] {
            if runs.len() > MAX_RUNS {
                return Err(format!("{} runs of pages are too many", runs.len()));
            }
            let seen = |run: &PageRun| SeenRun { run: *run, seen: 1 };
            let service = Service {
                key: self.service.clone(),
                probe: String::new(),
                recorded: self.started,
                runs: 1,
                recorder: String::new(),
                touched: runs.iter().map(seen).collect(),
            };
            let recording = Recording {
                image: self.image,
                layers: self.layers.clone(),
                services: vec![service],
                zeros: runs.to_vec(),
                zones: Vec::new(),
                segments: Vec::new(),
                indexes: Vec::new(),
            };
            recording
                .check()
                .map_err(|error| format!("no start could have such a profile: {error}"))?;
        }
        Ok(())
    }

    fn encode(&self) -> Result<Vec<u8>, Failure> {
        let numbers = |runs: &[PageRun]| runs.iter().map(|run| (run.layer, run.first, run.pages)).collect();
        let layers = self.layers.iter();
        let written = Written {
            version: VERSION,
            image: self.image,
            layers: layers
                .map(|layer| (layer.layer, layer.index, layer.data_size))
                .collect(),
            argv: self.service.argv.clone(),
            env: self.service.env.clone(),
            started: self.started,
            missed: numbers(&self.missed),
            touched: self.touched.as_deref().map(numbers),
        };
        serde_json::to_vec(&written).map_err(|error| Failure::host("encode a profile", error))
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if written.version != VERSION {
            return Err(format!("it is of version {}", written.version));
        }
        let runs = |numbers: Vec<(u16, u64, u32)>| -> Vec<PageRun> {
            let numbers = numbers.into_iter();
            numbers
                .map(|(layer, first, pages)| PageRun { layer, first, pages })
                .collect()
        };
        let layers = written.layers.into_iter();
        let profile = Self {
            image: written.image,
            layers: layers
                .map(|(layer, index, data_size)| RecordedLayer {
                    layer,
                    index,
                    data_size,
                })
                .collect(),
            service: ServiceKey {
                argv: written.argv,
                env: written.env,
            },
            started: written.started,
            missed: runs(written.missed),
            touched: written.touched.map(runs),
        };
        profile.check()?;
        Ok(profile)
    }
}

/// A profile as it is written: layers as blob, index and length of the data space; runs as layer, first page and count.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    image: Digest,
    layers: Vec<(Digest, Digest, u64)>,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    started: u64,
    missed: Vec<(u16, u64, u32)>,
    #[serde(default)]
    touched: Option<Vec<(u16, u64, u32)>>,
}

/// A profile that this host keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptProfile {
    /// Its file; see [`Profiles::forget`].
    pub name: String,
    /// The profile.
    pub profile: Profile,
}

/// The profiles of one installation.
#[derive(Clone, Debug)]
pub struct Profiles {
    directory: PathBuf,
}

impl Profiles {
    /// Those beside the recordings below `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps a profile, unless nothing can be learned from it. The oldest go when there are too many. Waits for the disk.
    ///
    /// # Errors
    /// When it is not what a profile must be, is too large, or cannot be written.
    pub fn add(&self, profile: &Profile) -> Result<(), Failure> {
        if profile.is_empty() {
            return Ok(());
        }
        let bad = |problem: String| {
            Failure::new(
                FailureKind::Host,
                format!("a profile of {}: {problem}", profile.image),
            )
        };
        profile.check().map_err(bad)?;
        let bytes = profile.encode()?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(bad(format!("{} bytes are too many", bytes.len())));
        }
        let folder = self.of_image(profile.image);
        let name = Name::new(profile.started, &profile.service, &bytes)?.to_string();
        fs::create_dir_all(&folder)
            .and_then(|()| write_atomically(&folder.join(&name), &bytes))
            .map_err(|error| Failure::host(format!("keep a profile in {}", folder.display()), error))?;
        remove_abandoned(&folder, 0);
        remove_oldest(&folder);
        Ok(())
    }

    /// The profiles of an image, newest first. One that cannot be used is passed over, with a warning.
    pub fn list(&self, image: Digest) -> Vec<KeptProfile> {
        let folder = self.of_image(image);
        let files = files(&folder).into_iter();
        let kept = files.filter_map(|(name, _)| {
            let path = folder.join(name.to_string());
            let profile = read(&path, image).inspect_err(|problem| {
                warn!(
                    "the profile {} is passed over: {problem}; you may remove it",
                    path.display()
                );
            });
            Some(KeptProfile {
                name: name.to_string(),
                profile: profile.ok()?,
            })
        });
        kept.collect()
    }

    /// Forgets profiles of an image by their names: a recording has what they say.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn forget<'a>(&self, image: Digest, names: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
        let folder = self.of_image(image);
        // Nothing but a profile goes, whatever the name.
        for name in names.into_iter().filter_map(Name::parse) {
            let path = folder.join(name.to_string());
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::host(format!("remove {}", path.display()), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn of_image(&self, image: Digest) -> PathBuf {
        self.directory.join(image.hex()).join("profiles")
    }
}

fn read(path: &Path, image: Digest) -> Result<Profile, String> {
    let bytes = read_limited(path, MAX_BYTES).map_err(|error| error.to_string())?;
    let profile = Profile::decode(&bytes)?;
    match profile.image == image {
        true => Ok(profile),
        false => Err(format!("it is of the image {}", profile.image)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::files::{MAX_OF_IMAGE, MAX_OF_SERVICE};
    use super::*;

    fn profile(word: &str, started: u64) -> Profile {
        Profile {
            image: Digest::of(b"image"),
            layers: vec![RecordedLayer {
                layer: Digest::of(b"layer"),
                index: Digest::of(b"index"),
                data_size: 100 << 12,
            }],
            service: ServiceKey {
                argv: vec!["/bin/service".to_owned(), word.to_owned()],
                env: BTreeMap::from([("MODE".to_owned(), "blue".to_owned())]),
            },
            started,
            missed: Profile::runs([(0, 7), (0, 8), (0, 8), (0, 99), (0, 7), (0, 3)]),
            touched: Some(Profile::runs([(0, 0)])),
        }
    }

    fn run(first: u64, pages: u32) -> PageRun {
        let layer = 0;
        PageRun { layer, first, pages }
    }

    #[test]
    fn what_is_kept_is_listed_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let profiles = Profiles::new(dir.path().to_owned());
        let (old, new) = (profile("a", 100), profile("b", 2_000));
        assert_eq!(new.missed, [run(7, 2), run(99, 1), run(3, 1)]);
        let unseen = Profile {
            touched: None,
            started: 50,
            ..profile("c", 0)
        };
        for one in [&new, &old, &unseen, &new] {
            profiles.add(one).unwrap();
        }
        let nothing = Profile {
            missed: Vec::new(),
            ..unseen.clone()
        };
        profiles.add(&nothing).unwrap();
        let kept = profiles.list(old.image);
        let listed: Vec<_> = kept.iter().map(|kept| &kept.profile).collect();
        assert_eq!(listed, [&new, &old, &unseen], "newest first, each once");
        profiles
            .forget(old.image, [kept[0].name.as_str(), "../../../x", "7-0-0.json"])
            .unwrap();
        assert_eq!(profiles.list(old.image), kept[1..]);
        assert_eq!(profiles.list(Digest::of(b"other")), []);
    }

    #[test]
    fn the_oldest_of_a_service_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let profiles = Profiles::new(dir.path().to_owned());
        let rare = profile("rare", 1);
        profiles.add(&rare).unwrap();
        let times = 10..10 + 3 * MAX_OF_SERVICE as u64;
        for started in times.clone() {
            profiles.add(&profile("often", started)).unwrap();
        }
        let kept = profiles.list(rare.image);
        let started: Vec<u64> = kept.iter().map(|kept| kept.profile.started).collect();
        let newest = times.rev().take(MAX_OF_SERVICE);
        assert_eq!(started, newest.chain([1]).collect::<Vec<_>>());
        // And of the image, when each start is another service.
        for started in 1_000..1_000 + MAX_OF_IMAGE as u64 {
            profiles.add(&profile(&started.to_string(), started)).unwrap();
        }
        let kept = profiles.list(rare.image);
        assert_eq!(kept.len(), MAX_OF_IMAGE);
        assert!(kept.iter().all(|kept| kept.profile.started >= 1_000));
    }

    #[test]
    fn damaged_and_hostile_ones_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let profiles = Profiles::new(dir.path().to_owned());
        let good = profile("a", 100);
        profiles.add(&good).unwrap();
        let folder = profiles.of_image(good.image);
        let text: Value = serde_json::from_slice(&good.encode().unwrap()).unwrap();
        let with = |pointer: &str, value: Value| {
            let mut text = text.clone();
            *text.pointer_mut(pointer).unwrap() = value;
            text.to_string()
        };
        let hostile = [
            String::new(),
            "null".to_owned(),
            text.to_string()[..100].to_owned(),
            "[".repeat(100_000),
            with("/version", json!(2)),
            with("/image", json!(Digest::of(b"another"))),
            with("/image", json!("../../etc")),
            with("/argv", json!([])),
            with("/argv", json!(["a\0b"])),
            with("/argv", json!(vec!["x"; 5_000])),
            with("/env", json!({"A=B": "c"})),
            with("/env", json!({"A": "x".repeat(200_000)})),
            with("/started", json!(-1)),
            with("/layers", json!([])),
            with("/layers/0/2", json!(4097)),
            with("/layers/0/2", json!(u64::MAX - 4095)),
            with("/layers", json!([text["layers"][0], text["layers"][0]])),
            // Outside the layer; in no layer; no page; twice; so many that they overflow.
            with("/missed/0", json!([0, 99, 2])),
            with("/missed/0", json!([1, 0, 1])),
            with("/missed/0", json!([70_000, 0, 1])),
            with("/missed/0", json!([0, 50, 0])),
            with("/missed/0", json!([0, 98, 2])),
            with("/missed/0", json!([0, u64::MAX, u32::MAX])),
            with("/touched/0", json!([0, 99, 2])),
            with("/touched", json!([[0, 1, 1], [0, 1, 1]])),
            text.to_string().replacen('{', "{\"more\":1,", 1),
            format!("{}{text}", " ".repeat(MAX_BYTES as usize)),
        ];
        for (number, text) in hostile.iter().enumerate() {
            fs::write(folder.join(format!("{number}-0-0.json")), text).unwrap();
        }
        fs::create_dir(folder.join("7-1-1.json")).unwrap();
        fs::write(folder.join("07-1-1.json"), text.to_string()).unwrap();
        let listed = profiles.list(good.image);
        assert_eq!(
            listed
                .iter()
                .map(|kept| (&kept.name, &kept.profile))
                .collect::<Vec<_>>(),
            [(&listed[0].name, &good)]
        );
        // They are among those that go first.
        for started in 200..200 + 2 * MAX_OF_SERVICE as u64 {
            profiles.add(&profile("a", started)).unwrap();
        }
        assert_eq!(profiles.list(good.image).len(), MAX_OF_SERVICE);
        // And what is no profile is not kept.
        let outside = Profile {
            missed: vec![run(99, 2)],
            ..good.clone()
        };
        let told = profiles.add(&outside).unwrap_err().to_string();
        assert!(told.contains("no start could"), "{told}");
        let words = (0..60_000).map(|number| (0, 2 * number));
        let long = Profile {
            layers: vec![RecordedLayer {
                data_size: 1 << 40,
                ..good.layers[0]
            }],
            missed: Profile::runs(words.clone()),
            touched: Some(Profile::runs(words.map(|(layer, page)| (layer, page + 1)))),
            ..good
        };
        let told = profiles.add(&long).unwrap_err().to_string();
        assert!(told.contains("too many"), "{told}");
    }
}

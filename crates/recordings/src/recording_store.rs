//! The recordings that this host keeps: `<root>/runtime/<image manifest>/<artifact>/`, with the encoded recording, its digest,
//! what vouches for it, and the zone if it was made here and not pushed.
//!
//! A start by a kept recording asks the registry for no artifact. Folders appear whole: they are made under a temporary
//! name and renamed. A power cut may damage one that was not synced yet; it is passed over until it is kept again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::Recording;
use xebec_kernel::file::{
    remove_abandoned, sync_directory, sync_files, write_atomically, write_for_this_boot,
};
use xebec_kernel::remove::remove_tree;
use xebec_trust::Evidence;

use xebec_protocol::failure::Failure;

const RECORDING: &str = "recording";
/// By this damage is told. Versions that synced a recording before it had its name wrote none.
const DIGEST: &str = "recording.digest";
const FACTS: &str = "facts.json";
const ZONE: &str = "zone";
const WRONG: &str = "wrong";

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A recording that this host keeps.
#[derive(Clone, Debug)]
pub struct KeptRecording {
    /// Its artifact, or the digest of the encoded recording if it was never pushed.
    pub name: Digest,
    /// The evidence for it.
    pub evidence: Evidence,
    /// The recording.
    pub recording: Recording,
    /// Its own zone, if this host has it.
    pub zone: Option<PathBuf>,
}

impl KeptRecording {
    /// Whether it is an artifact in a registry: this host has no zone of its own for it.
    pub fn is_pushed(&self) -> bool {
        self.zone.is_none()
    }
}

/// The recordings of one installation.
#[derive(Clone, Debug)]
pub struct KeptRecordings {
    directory: PathBuf,
}

impl KeptRecordings {
    /// Those below `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Those of an image, newest service first. One that cannot be read is passed over, with a warning.
    pub fn list(&self, manifest: Digest) -> Vec<KeptRecording> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(self.of_image(manifest))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|hex| format!("sha256:{hex}").parse().ok()) else {
                continue;
            };
            if self.is_distrusted(manifest, name) {
                continue;
            }
            match read(&entry.path(), name) {
                Ok(recording) => kept.push(recording),
                Err(problem) => warn!("the recording in {}: {problem}", entry.path().display()),
            }
        }
        let newest = |kept: &KeptRecording| kept.recording.services.iter().map(|s| s.recorded).max();
        kept.sort_by_key(|kept| (std::cmp::Reverse(newest(kept)), kept.name));
        kept
    }

    /// Keeps a recording, or adds to the evidence for one that is kept.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(
        &self,
        manifest: Digest,
        name: Digest,
        recording: &[u8],
        evidence: &Evidence,
        zone: Option<&[u8]>,
    ) -> Result<(), Failure> {
        self.keep_soon(manifest, name, recording, evidence, zone)?;
        self.sync(manifest, name)
    }

    /// The same, but it is not on the disk before [`Self::sync`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_soon(
        &self,
        manifest: Digest,
        name: Digest,
        recording: &[u8],
        evidence: &Evidence,
        zone: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let folder = self.of_image(manifest).join(name.hex());
        // Several starts may keep the same at once.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let temporary = self
            .directory
            .join(format!(".new-{}-{}-{serial}", name.short(), std::process::id()));
        let failed = |error| Failure::host(format!("keep the recording in {}", folder.display()), error);
        let encode = |evidence: &Evidence| {
            serde_json::to_vec(evidence).map_err(|error| Failure::host("encode facts", error))
        };
        if let Ok(known) = read(&folder, name) {
            let both = known.evidence.clone().or(evidence);
            if both != known.evidence {
                // The file on the disk is replaced by the known facts.
                write_atomically(&folder.join(FACTS), &encode(&both)?).map_err(failed)?;
            }
            return Ok(());
        }
        if self.is_distrusted(manifest, name) {
            return Ok(());
        }
        let facts = encode(evidence)?;
        let fill = |folder: &Path| -> io::Result<()> {
            // First that by which the others are told to be damaged.
            let digest = Digest::of(recording).to_string();
            write_for_this_boot(&folder.join(DIGEST), digest.as_bytes())?;
            write_for_this_boot(&folder.join(RECORDING), recording)?;
            zone.map_or(Ok(()), |zone| write_for_this_boot(&folder.join(ZONE), zone))?;
            write_for_this_boot(&folder.join(FACTS), &facts)
        };
        if folder.is_dir() {
            return fill(&folder).map_err(failed);
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(self.of_image(manifest))?;
            fs::create_dir_all(&temporary)?;
            fill(&temporary)?;
            match fs::rename(&temporary, &folder) {
                // Another process kept the same meanwhile.
                Err(_) if folder.is_dir() => remove_tree(&temporary),
                renamed => renamed,
            }
        };
        write().map_err(|error| {
            let _ = remove_tree(&temporary);
            failed(error)
        })
    }

    /// Brings a recording of an image to the disk. None is no error. Blocks.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn sync(&self, manifest: Digest, name: Digest) -> Result<(), Failure> {
        let image = self.of_image(manifest);
        let folder = image.join(name.hex());
        let sync = || {
            sync_files(&folder, &[RECORDING, DIGEST, ZONE, FACTS])?;
            sync_directory(&image)?;
            sync_directory(&self.directory)
        };
        match sync() {
            // It was forgotten meanwhile.
            Err(_) if !folder.is_dir() => Ok(()),
            synced => synced.map_err(|error| Failure::host(format!("sync {}", folder.display()), error)),
        }
    }

    /// Uses a recording no more: it brought wrong pages. It stays known, so that it is not fetched again.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn distrust(&self, name: Digest) -> Result<(), Failure> {
        for image in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let folder = image.path().join(name.hex());
            if folder.is_dir() {
                fs::write(folder.join(WRONG), b"").map_err(|error| {
                    Failure::host(format!("note that {} is wrong", folder.display()), error)
                })?;
            }
        }
        Ok(())
    }

    /// Whether a recording brought wrong pages here, whichever image it is kept for.
    pub fn has_been_wrong(&self, name: Digest) -> bool {
        let mut images = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        images.any(|image| image.path().join(name.hex()).join(WRONG).exists())
    }

    /// Whether a recording of an image brought wrong pages here.
    pub fn is_distrusted(&self, manifest: Digest, name: Digest) -> bool {
        self.of_image(manifest).join(name.hex()).join(WRONG).exists()
    }

    /// The manifests of the images that there are recordings of, or were.
    pub fn images(&self) -> Vec<Digest> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut images: Vec<Digest> = names
            .filter_map(|hex| format!("sha256:{hex}").parse().ok())
            .collect();
        images.sort_unstable();
        images
    }

    /// Forgets one recording of an image.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, manifest: Digest, name: Digest) -> Result<(), Failure> {
        let image = self.of_image(manifest);
        let folder = image.join(name.hex());
        remove_tree(&folder)
            .map_err(|error| Failure::host(format!("remove the recording in {}", folder.display()), error))?;
        // The registry is to be asked again, and the folder stays if something does.
        let _ = fs::remove_file(image.join("asked"));
        let _ = fs::remove_dir(&image);
        Ok(())
    }

    /// Forgets the recordings of an image, but not which of them brought wrong pages.
    ///
    /// # Errors
    /// When they cannot be removed.
    pub fn forget(&self, manifest: Digest) -> Result<(), Failure> {
        let folder = self.of_image(manifest);
        let failed = |error| Failure::host(format!("remove recordings in {}", folder.display()), error);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.join(WRONG).exists() {
                for name in [RECORDING, DIGEST, FACTS, ZONE] {
                    let _ = fs::remove_file(path.join(name));
                }
            } else if path.is_dir() {
                remove_tree(&path).map_err(failed)?;
            } else {
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        // It stays if something does.
        let _ = fs::remove_dir(&folder);
        Ok(())
    }

    /// Removes what a power cut left of recordings that were not synced yet. For when nobody keeps any yet.
    pub fn remove_damaged(&self) {
        remove_abandoned(&self.directory, 2);
        let folders = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        for folder in folders(&self.directory).flat_map(|image| folders(&image.path()).collect::<Vec<_>>()) {
            let path = folder.path();
            let is_empty = |name: &str| fs::metadata(path.join(name)).is_ok_and(|file| file.len() == 0);
            let is_damaged = [RECORDING, DIGEST, FACTS].into_iter().any(is_empty);
            if is_damaged && !path.join(WRONG).exists() {
                warn!(
                    "{} was not on the disk when the power went; it is removed",
                    path.display()
                );
                if let Err(error) = remove_tree(&path) {
                    warn!("{}: {error}", path.display());
                }
            }
        }
    }

    /// Notes that the image's registry was asked and had none for what was to be started; see [`Self::asked`].
    pub fn note_asked(&self, manifest: Digest) {
        let folder = self.of_image(manifest);
        let noted = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("asked"), b""));
        if let Err(error) = noted {
            warn!("{}: {error}", folder.display());
        }
    }

    /// How long ago that was noted.
    pub fn asked(&self, manifest: Digest) -> Option<std::time::Duration> {
        let path = self.of_image(manifest).join("asked");
        fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
    }

    /// Whether newer recordings of an image were not looked for, or begun to be kept, within `period`. Says so once, and
    /// again after as long.
    pub fn is_look_due(&self, manifest: Digest, period: std::time::Duration) -> bool {
        let path = self.of_image(manifest).join("looked");
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        // None also where the time is one to come: the clock was set back since.
        let ago = modified.ok().and_then(|then| then.elapsed().ok());
        if ago.is_some_and(|ago| ago < period) {
            return false;
        }
        match fs::write(&path, b"") {
            Ok(()) => ago.is_some(),
            Err(error) => {
                warn!("{}: {error}", path.display());
                false
            }
        }
    }

    fn of_image(&self, manifest: Digest) -> PathBuf {
        self.directory.join(manifest.hex())
    }
}

fn read(folder: &Path, name: Digest) -> Result<KeptRecording, String> {
    let file = |name: &str| fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let encoded = file(RECORDING)?;
    let is_damaged = match fs::read(folder.join(DIGEST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        digest => digest.ok() != Some(Digest::of(&encoded).to_string().into_bytes()),
    };
    if is_damaged {
        return Err(format!("{RECORDING} is damaged"));
    }
    let recording = Recording::decode(&encoded).map_err(|error| error.to_string())?;
    let evidence = serde_json::from_slice(&file(FACTS)?).map_err(|error| format!("{FACTS}: {error}"))?;
    let zone = folder.join(ZONE);
    let kept = fs::metadata(&zone).ok().map(|metadata| metadata.len());
    // Its own comes first.
    if let (Some(kept), Some(own)) = (kept, recording.zones.first())
        && kept != own.size
    {
        return Err(format!("{ZONE} is damaged"));
    }
    Ok(KeptRecording {
        name,
        evidence,
        recording,
        zone: kept.map(|_| zone),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use xebec_format::runtime_image::Zone;

    use super::*;

    #[test]
    fn several_may_keep_the_same_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptRecordings::new(dir.path().to_owned());
        let (image, name) = (Digest::of(b"image"), Digest::of(b"name"));
        std::thread::scope(|scope| {
            let keep = || {
                kept.keep(
                    image,
                    name,
                    b"recording",
                    &Evidence::default(),
                    Some(&[0; 1 << 20]),
                )
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(keep)).collect();
            all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let folder = kept.of_image(image).join(name.hex());
        assert_eq!(fs::read(folder.join(RECORDING)).unwrap(), b"recording");
    }

    #[test]
    fn one_that_a_power_cut_damaged_is_not_believed_and_heals() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptRecordings::new(dir.path().to_owned());
        let (image, name) = (Digest::of(b"image"), Digest::of(b"name"));
        let recording = Recording {
            image,
            layers: Vec::new(),
            services: Vec::new(),
            zeros: Vec::new(),
            zones: vec![Zone {
                digest: Digest::of(b"zone"),
                size: 4,
            }],
            segments: Vec::new(),
            indexes: Vec::new(),
        };
        let encoded = recording.encode();
        let keep = || {
            kept.keep_soon(image, name, &encoded, &Evidence::default(), Some(b"zone"))
                .unwrap();
        };
        let is_listed = || !kept.list(image).is_empty();
        keep();
        kept.sync(image, name).unwrap();
        kept.sync(image, Digest::of(b"another")).unwrap();
        assert!(is_listed());
        let folder = kept.of_image(image).join(name.hex());
        let other = Recording {
            image: Digest::of(b"other"),
            ..recording
        };
        // It would be read without a complaint.
        let other = other.encode();
        for (file, damage) in [
            (RECORDING, &encoded[..encoded.len() - 1]),
            (RECORDING, b""),
            (RECORDING, &other),
            (DIGEST, b""),
            (FACTS, b""),
            (ZONE, b""),
        ] {
            fs::write(folder.join(file), damage).unwrap();
            assert!(!is_listed(), "{file} of {} bytes", damage.len());
            keep();
            assert!(is_listed(), "{file} of {} bytes", damage.len());
        }
        fs::remove_file(folder.join(DIGEST)).unwrap();
        assert!(is_listed(), "of an older version");
        let own = Evidence {
            own: true,
            ..Evidence::default()
        };
        kept.keep_soon(image, name, &encoded, &own, None).unwrap();
        keep();
        assert!(kept.list(image).iter().all(|kept| kept.evidence.own), "it stays");
        kept.remove_damaged();
        assert!(is_listed());
        fs::write(folder.join(FACTS), b"").unwrap();
        kept.remove_damaged();
        assert!(!folder.exists());
        keep();
        // Kept again, it is distrusted all the same.
        kept.distrust(name).unwrap();
        keep();
        assert!(!is_listed());
        kept.forget(image).unwrap();
        let left: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn newer_ones_are_looked_for_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptRecordings::new(dir.path().to_owned());
        let image = Digest::of(b"image");
        let hour = Duration::from_secs(3600);
        assert!(!kept.is_look_due(image, hour), "nothing is kept");
        fs::create_dir_all(kept.of_image(image)).unwrap();
        assert!(!kept.is_look_due(image, hour), "the time begins");
        assert!(!kept.is_look_due(image, hour));
        let looked = fs::File::options()
            .write(true)
            .open(kept.of_image(image).join("looked"));
        let looked = looked.unwrap();
        looked.set_modified(SystemTime::now() - hour).unwrap();
        assert!(kept.is_look_due(image, hour));
        assert!(!kept.is_look_due(image, hour), "once");
        looked.set_modified(SystemTime::now() + 9 * hour).unwrap();
        assert!(!kept.is_look_due(image, hour));
        let since = looked.metadata().unwrap().modified().unwrap().elapsed();
        assert!(since.is_ok(), "not before the clock gets there");
        kept.forget(image).unwrap();
        assert!(!kept.of_image(image).exists());
    }
}

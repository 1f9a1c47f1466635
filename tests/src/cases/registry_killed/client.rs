//! A client that pushes, pulls, moves and deletes at random, at whichever node is there, and tells the model what was acknowledged.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::image::{Blob, Image, MANIFEST_TYPE, blob, image};
use super::model::{Fact, Model, Place};
use crate::http::{Answer, Client};

/// Repositories that all share.
const REPOSITORIES: usize = 3;
/// Tags of each client in each repository: few, so that they move.
const TAGS: usize = 30;
/// A client that has more images than this deletes some.
const MOST_IMAGES: usize = 60;
/// An upload that rests for less is not given up: half of the registry's `upload_timeout`.
pub(super) const UPLOAD_LASTS: Duration = Duration::from_secs(2);
/// The registry's grace time. Half of it lasts the promise that a blob which is here will be here for its manifest.
pub(super) const GRACE: Duration = Duration::from_secs(1);
const BYTES: &str = "Content-Type: application/octet-stream\r\n";

/// An upload that a kill broke off: where it is, of what, how much of it was acknowledged, and when.
struct Broken {
    repository: usize,
    place: String,
    seed: u64,
    acknowledged: usize,
    at: Instant,
}

pub(super) struct Worker<'a> {
    number: u64,
    model: &'a Model,
    nodes: Vec<Client>,
    random: Rng,
    made: u64,
    images: Vec<Place>,
    broken: Option<Broken>,
}

pub(super) fn repository(number: usize) -> String {
    format!("soak/repository{number}")
}

impl<'a> Worker<'a> {
    pub(super) fn new(number: u64, model: &'a Model, addresses: &[String]) -> Self {
        Self {
            number,
            model,
            nodes: addresses.iter().map(|address| Client::new(address)).collect(),
            random: Rng::new(),
            made: 0,
            images: Vec::new(),
            broken: None,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let done = match self.random.u8(..12) {
                _ if self.broken.is_some() => self.go_on(),
                0..=4 => self.push(),
                5 => self.begin_and_leave(),
                6..=7 if self.images.len() > MOST_IMAGES / 4 => self.delete(),
                8 => self.delete_tag(),
                _ if self.images.len() > MOST_IMAGES => self.delete(),
                _ => self.pull(),
            };
            if done.is_err() {
                // Killed; it comes back.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// One request, to any node.
    fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<Answer> {
        let node = self.random.usize(..self.nodes.len());
        let answer = self.nodes[node].ask(method, path, headers, body)?;
        if answer.status >= 500 && self.model.is_without_power() {
            return Err(io::Error::other("the registry has no disk"));
        }
        if answer.status >= 500 {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let what = format!("{method} {path}: {} {text}", answer.status);
            self.model.fault(what, |counts| &mut counts.odd);
            return Err(io::Error::other("the registry failed"));
        }
        Ok(answer)
    }

    fn odd(&self, what: &str, answer: &Answer) -> io::Error {
        let text = String::from_utf8_lossy(&answer.body);
        let what = format!("{what}: {} {text}", answer.status);
        self.model.fault(what, |counts| &mut counts.odd);
        io::Error::other("an odd answer")
    }

    /// An upload that rested for long, because the machine is busy, may be gone.
    fn unless_given_up(&self, upload: &Broken, what: &str, answer: &Answer) -> io::Error {
        match answer.status == 404 && upload.at.elapsed() > UPLOAD_LASTS {
            true => io::Error::other("the upload was given up"),
            false => self.odd(what, answer),
        }
    }

    fn push(&mut self) -> io::Result<()> {
        self.made += 1;
        let seed = self.number * 1_000_000_000 + self.made;
        let repository = self.random.usize(..REPOSITORIES);
        let tag = format!("t{}-{}", self.number, self.random.usize(..TAGS));
        let image = image(seed);
        let begun = Instant::now();
        for blob in &image.blobs {
            self.bring(repository, blob)?;
        }
        let place = (repository, seed);
        self.model.pushing(place, &tag);
        let path = format!("/v2/{}/manifests/{tag}", self::repository(repository));
        let answer = self.ask("PUT", &path, MANIFEST_TYPE, &image.manifest)?;
        match answer.status {
            201 => {
                self.model.pushed(place, &tag);
                self.images.push(place);
                Ok(())
            }
            400 if String::from_utf8_lossy(&answer.body).contains("MANIFEST_BLOB_UNKNOWN") => {
                // The machine was busy for longer than the promise lasts.
                self.model.refused(place, &tag);
                if begun.elapsed() < GRACE / 2 {
                    let what = format!("a promise of {place:?} was broken: {answer:?}");
                    self.model.fault(what, |counts| &mut counts.lost);
                }
                Ok(())
            }
            _ => Err(self.odd("pushing a manifest", &answer)),
        }
    }

    /// Sees that the repository has a blob, as clients do: it asks, mounts, or uploads.
    fn bring(&mut self, repository: usize, blob: &Blob) -> io::Result<()> {
        let name = self::repository(repository);
        let (digest, sent) = (blob.digest, Instant::now());
        let answer = self.ask("HEAD", &format!("/v2/{name}/blobs/{digest}"), "", b"")?;
        if answer.status == 200 {
            return Ok(());
        }
        let query = match self.random.u8(..4) {
            0 => {
                let from = self::repository(self.random.usize(..REPOSITORIES));
                format!("?mount={digest}&from={from}")
            }
            1 => format!("?mount={digest}"),
            _ => String::new(),
        };
        let begun = self.ask("POST", &format!("/v2/{name}/blobs/uploads/{query}"), "", b"")?;
        match begun.status {
            201 => {
                self.model.blob((repository, blob.seed), sent);
                return Ok(());
            }
            202 => {}
            _ => return Err(self.odd("beginning an upload", &begun)),
        }
        let place = begun.header("location").unwrap_or_default().to_owned();
        let upload = Broken {
            repository,
            place,
            seed: blob.seed,
            acknowledged: 0,
            at: Instant::now(),
        };
        self.upload(upload, blob, 0)
    }

    /// Sends the rest of a blob from `from` on, in several parts or with the last request.
    fn upload(&mut self, mut upload: Broken, blob: &Blob, mut from: usize) -> io::Result<()> {
        let parts = self.random.usize(..3);
        for _ in 0..parts {
            let to = from + self.random.usize(..=blob.bytes.len() - from);
            // "0-0" says as well that there is nothing.
            if to < from + 2 {
                continue;
            }
            let range = format!("{BYTES}Content-Range: {from}-{}\r\n", to - 1);
            match self.ask("PATCH", &upload.place, &range, &blob.bytes[from..to]) {
                Ok(answer) if answer.status == 202 => {
                    (upload.acknowledged, upload.at) = (to, Instant::now());
                }
                Ok(answer) => return Err(self.unless_given_up(&upload, "sending a part", &answer)),
                Err(error) => {
                    self.broken = Some(upload);
                    return Err(error);
                }
            }
            from = to;
        }
        self.finish(upload, blob, from)
    }

    fn finish(&mut self, upload: Broken, blob: &Blob, from: usize) -> io::Result<()> {
        let (sent, path) = (Instant::now(), format!("{}?digest={}", upload.place, blob.digest));
        // No answer: nobody knows whether the blob is there.
        let answer = self.ask("PUT", &path, BYTES, &blob.bytes[from..])?;
        match answer.status {
            201 => self.model.blob((upload.repository, blob.seed), sent),
            _ => return Err(self.unless_given_up(&upload, "finishing an upload", &answer)),
        }
        Ok(())
    }

    /// Goes on with an upload that was broken off: what was acknowledged of it is there.
    fn go_on(&mut self) -> io::Result<()> {
        let Some(upload) = self.broken.take() else {
            return Ok(());
        };
        let answer = match self.ask("GET", &upload.place, "", b"") {
            Ok(answer) => answer,
            Err(error) => {
                self.broken = Some(upload);
                return Err(error);
            }
        };
        let here = match answer.status {
            204 => answer.header("range").and_then(|range| {
                let last: usize = range.strip_prefix("0-")?.parse().ok()?;
                Some(if last == 0 { 0 } else { last + 1 })
            }),
            _ if upload.at.elapsed() > UPLOAD_LASTS => return Ok(()),
            _ => None,
        };
        let blob = blob(upload.seed);
        let Some(here) = here.filter(|here| *here >= upload.acknowledged && *here <= blob.bytes.len()) else {
            let what = format!(
                "an upload of {} bytes of which {} were acknowledged: {answer:?}",
                blob.bytes.len(),
                upload.acknowledged
            );
            self.model.fault(what, |counts| &mut counts.lost);
            return Ok(());
        };
        self.model.count(|counts| counts.resumed += 1);
        self.upload(upload, &blob, here)
    }

    /// Begins an upload that nobody finishes.
    fn begin_and_leave(&mut self) -> io::Result<()> {
        let name = repository(self.random.usize(..REPOSITORIES));
        let begun = self.ask("POST", &format!("/v2/{name}/blobs/uploads/"), "", b"")?;
        let place = begun.header("location").unwrap_or_default().to_owned();
        let bytes = blob(self.random.u64(..1 << 40)).bytes;
        self.ask("PATCH", &place, BYTES, &bytes)?;
        Ok(())
    }

    fn delete(&mut self) -> io::Result<()> {
        if self.images.is_empty() {
            return Ok(());
        }
        let place = self.images.swap_remove(self.random.usize(..self.images.len()));
        let was = self.model.manifest(place);
        self.model.deleting(place);
        let path = format!("/v2/{}/manifests/{}", repository(place.0), image(place.1).digest);
        let answer = self.ask("DELETE", &path, "", b"")?;
        match answer.status {
            202 => self.model.deleted(place),
            404 if was == Fact::MayBe => self.model.deleted(place),
            _ => {
                let what = format!("deleting {place:?}, which is there: {}", answer.status);
                self.model.fault(what, |counts| &mut counts.lost);
            }
        }
        Ok(())
    }

    fn delete_tag(&mut self) -> io::Result<()> {
        let repository = self.random.usize(..REPOSITORIES);
        let tag = format!("t{}-{}", self.number, self.random.usize(..TAGS));
        let place = (repository, tag.clone());
        let was = self.model.tag(&place);
        self.model.deleting_tag(&place);
        let path = format!("/v2/{}/manifests/{tag}", self::repository(repository));
        let answer = self.ask("DELETE", &path, "", b"")?;
        if answer.status != 202 && was.sure().is_some() {
            let what = format!("deleting the tag {place:?}, which is there: {}", answer.status);
            self.model.fault(what, |counts| &mut counts.lost);
        }
        self.model.deleted_tag(&place);
        Ok(())
    }

    /// Pulls an image by any client's tag, and its blobs.
    fn pull(&mut self) -> io::Result<()> {
        let tags = self.model.sure_tags();
        let Some(place) = self.random.choice(tags) else {
            return Ok(());
        };
        let before = self.model.tag(&place);
        let Some(seed) = before.sure() else {
            return Ok(());
        };
        let image = image(seed);
        let path = format!("/v2/{}/manifests/{}", repository(place.0), place.1);
        let answer = self.ask("GET", &path, "Accept: */*\r\n", b"")?;
        if self.model.tag(&place) != before {
            return Ok(());
        }
        if answer.status != 200 || answer.body != image.manifest {
            let what = format!("the tag {place:?} names image {seed}: {}", answer.status);
            self.model.fault(what, |counts| &mut counts.lost);
            return Ok(());
        }
        self.check((place.0, seed), &image)
    }

    /// An image that is there is there whole.
    pub(super) fn check(&mut self, place: Place, image: &Image) -> io::Result<()> {
        for blob in &image.blobs {
            self.check_blob(place, blob, || self_is(self.model, place))?;
        }
        let path = format!("/v2/{}/manifests/{}", repository(place.0), image.digest);
        let answer = self.ask("GET", &path, "Accept: */*\r\n", b"")?;
        if (answer.status != 200 || answer.body != image.manifest) && self.model.manifest(place) == Fact::Is {
            let what = format!("the manifest of image {place:?}: {}", answer.status);
            self.model.fault(what, |counts| &mut counts.lost);
        }
        self.model.count(|counts| counts.pulled += 1);
        Ok(())
    }

    /// A blob that comes is right, and one that must be there comes.
    pub(super) fn check_blob(
        &mut self,
        place: Place,
        blob: &Blob,
        must_be: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let path = format!("/v2/{}/blobs/{}", repository(place.0), blob.digest);
        let answer = self.ask("GET", &path, "", b"")?;
        let what = || format!("a blob of {place:?}: {} {path}", answer.status);
        if answer.status == 200 && answer.body != blob.bytes {
            self.model.fault(what(), |counts| &mut counts.wrong);
        } else if answer.status != 200 && must_be() {
            self.model.fault(what(), |counts| &mut counts.lost);
        }
        Ok(())
    }

    /// Whether a manifest is there.
    pub(super) fn has(&mut self, place: Place, image: &Image) -> io::Result<bool> {
        let path = format!("/v2/{}/manifests/{}", repository(place.0), image.digest);
        Ok(self.ask("HEAD", &path, "", b"")?.status == 200)
    }

    /// Deletes a manifest, whether it is there or not.
    pub(super) fn remove(&mut self, place: Place, image: &Image) -> io::Result<()> {
        let path = format!("/v2/{}/manifests/{}", repository(place.0), image.digest);
        self.ask("DELETE", &path, "", b"")?;
        Ok(())
    }
}

fn self_is(model: &Model, place: Place) -> bool {
    model.manifest(place) == Fact::Is
}

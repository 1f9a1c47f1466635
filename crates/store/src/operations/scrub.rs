//! Scrub: all blobs and manifests are read again, and compared with their digests. Records that no collection would look at are found, too.

use std::io;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use crate::digest::{Digest, Hasher};
use crate::error::Result;
use crate::model::Blob;
use crate::records::{blobs, manifests};
use crate::store::{Store, milliseconds, now};

/// So many records are looked up at once.
const STEP: usize = 64;
/// Manifests are up to some MiB each.
const MANIFESTS: usize = 4;

/// The blobs that a scrub reads, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubOptions {
    /// So many bytes a second at most; as fast as it goes, if none.
    pub bytes_per_second: Option<u64>,
    /// Leaves out blobs that were read within this time and were sound, so that a scrub that was ended goes on where it was.
    pub not_within: Duration,
}

/// The findings of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blobs that were read, or should have been.
    pub blobs: u64,
    /// Manifests that were read.
    pub manifests: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Blobs with wrong bytes. From now on they are absent until somebody pushes them again: that mends them.
    pub damaged: Vec<Digest>,
    /// Blobs without an object. They are absent, too.
    pub missing: Vec<Digest>,
    /// Blobs that could not be read, and why. Nothing is concluded from that.
    pub unreadable: Vec<(Digest, String)>,
    /// Manifests with wrong bytes: the database is damaged. A push of the manifest mends it; what else is damaged there, nobody knows.
    pub damaged_manifests: Vec<Digest>,
}

enum Verdict {
    Sound,
    Damaged,
    Missing,
    Unreadable(String),
}

impl Store {
    /// Reads everything again. `report` is called after each blob with what was found so far.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn scrub(
        &self,
        options: &ScrubOptions,
        mut report: impl FnMut(&Scrubbed) + Send,
    ) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        self.recall_forgotten().await?;
        self.scrub_manifests(&mut scrubbed).await?;
        let unread_since = now()
            .saturating_sub(milliseconds(options.not_within))
            .saturating_add(1);
        let mut after: Option<Digest> = None;
        let mut pace = Pace::new(options.bytes_per_second);
        loop {
            let from = after.take();
            let blobs = self
                .read_records("list blobs", move |tx| {
                    blobs::list(tx, STEP, from.as_ref(), unread_since)
                })
                .await?;
            for blob in &blobs {
                let verdict = self.verdict(blob, &mut pace, &mut scrubbed.bytes).await;
                self.note_verdict(blob, verdict, &mut scrubbed).await?;
                report(&scrubbed);
            }
            if blobs.len() < STEP {
                return Ok(scrubbed);
            }
            after = blobs.into_iter().next_back().map(|blob| blob.digest);
        }
    }

    async fn scrub_manifests(&self, scrubbed: &mut Scrubbed) -> Result<()> {
        let mut after: Option<Digest> = None;
        loop {
            let from = after.take();
            let found = self
                .read_records("read manifests", move |tx| {
                    manifests::contents(tx, MANIFESTS, from.as_ref())
                })
                .await?;
            for (digest, content) in &found {
                scrubbed.manifests += 1;
                scrubbed.bytes += content.len() as u64;
                if Digest::of(digest.algorithm(), content) != *digest {
                    scrubbed.damaged_manifests.push(digest.clone());
                }
            }
            if found.len() < MANIFESTS {
                return Ok(());
            }
            after = found.into_iter().next_back().map(|(digest, _)| digest);
        }
    }

    async fn verdict(&self, blob: &Blob, pace: &mut Pace, bytes: &mut u64) -> Verdict {
        match self.hash(blob, pace, bytes).await {
            Ok(found) if found == blob.digest => Verdict::Sound,
            Ok(_) => Verdict::Damaged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Verdict::Missing,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Verdict::Damaged,
            Err(error) => Verdict::Unreadable(error.to_string()),
        }
    }

    async fn hash(&self, blob: &Blob, pace: &mut Pace, bytes: &mut u64) -> io::Result<Digest> {
        let size = self.inner.objects.size(&blob.object).await?;
        match size {
            None => return Err(io::ErrorKind::NotFound.into()),
            Some(size) if size != blob.size => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => {}
        }
        let mut hasher = Hasher::new(blob.digest.algorithm());
        let mut pieces = self.inner.objects.read(&blob.object, 0..blob.size).await?;
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            hasher.update(&piece);
            *bytes += piece.len() as u64;
            pace.keep(piece.len() as u64).await;
        }
        Ok(hasher.finish())
    }

    async fn note_verdict(&self, blob: &Blob, verdict: Verdict, scrubbed: &mut Scrubbed) -> Result<()> {
        scrubbed.blobs += 1;
        let is_sound = match verdict {
            Verdict::Sound => true,
            Verdict::Damaged | Verdict::Missing => false,
            Verdict::Unreadable(why) => {
                scrubbed.unreadable.push((blob.digest.clone(), why));
                return Ok(());
            }
        };
        let noted = blob.clone();
        let is_current = self
            .write_records("note what a scrub found", move |tx| {
                blobs::note_scrub(tx, &noted, is_sound, now())
            })
            .await?;
        // One that was deleted or replaced while it was read says nothing.
        match verdict {
            Verdict::Damaged if is_current => scrubbed.damaged.push(blob.digest.clone()),
            Verdict::Missing if is_current => scrubbed.missing.push(blob.digest.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// Keeps reading at a rate.
struct Pace {
    rate: Option<u64>,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            begun: Instant::now(),
            bytes: 0,
        }
    }

    async fn keep(&mut self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        self.bytes += bytes;
        let due = Duration::from_millis(self.bytes.saturating_mul(1000) / rate);
        let ahead = due.saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            tokio::time::sleep(ahead).await;
        }
    }
}

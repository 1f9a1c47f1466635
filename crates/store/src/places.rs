//! The places beside the main one: where replicas are.
//!
//! Each has a *mark*, an object with random bytes, which the records know, too. A directory on which nothing is mounted any more, or a bucket of another
//! registry, has not that mark. Nothing is written there, and nothing that is missing there counts as lost.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xebec_objects::Objects;
use xebec_placement::PlaceName;

use crate::config::PlaceConfig;

/// The key of the mark. No key of an object is like it.
pub(crate) const MARK: &str = "place";
/// A place that had its mark has it for so long, before somebody looks again.
const SEEN: Duration = Duration::from_secs(10);
/// A place that did not answer is asked last for so long; for twice as long if it does not answer right after that either, and so on.
const AVOIDED: Duration = Duration::from_secs(60);
/// But no longer than so.
const LONGEST: Duration = Duration::from_secs(600);

/// A place, and what is known of it.
pub(crate) struct Place {
    pub(crate) objects: Objects,
    seen: Mutex<Option<Instant>>,
}

impl Place {
    /// Whether it had its mark a short while ago.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.lock().is_some_and(|seen| seen.elapsed() < SEEN)
    }

    /// Somebody looks again before it is used.
    pub(crate) fn forget(&self) {
        *self.seen.lock() = None;
    }

    pub(crate) fn see(&self) {
        *self.seen.lock() = Some(Instant::now());
    }
}

/// All of them, by their names.
pub(crate) struct Places {
    others: BTreeMap<PlaceName, Place>,
    /// When a place, the main one included, did not answer last, and for how long it is asked last.
    failed: Mutex<BTreeMap<PlaceName, (Instant, Duration)>>,
}

impl Places {
    /// Opens all, which says nothing of whether they answer. Blocks.
    pub(crate) fn open(configs: &[PlaceConfig]) -> Result<Self, (PlaceName, io::Error)> {
        let opened = configs.iter().map(|config| {
            let objects = Objects::open_lazily(&config.objects, config.root.as_deref());
            let objects = objects.map_err(|error| (config.name.clone(), error))?;
            let place = Place {
                objects,
                seen: Mutex::default(),
            };
            Ok((config.name.clone(), place))
        });
        Ok(Self {
            others: opened.collect::<Result<_, _>>()?,
            failed: Mutex::default(),
        })
    }

    /// A place beside the main one.
    pub(crate) fn get(&self, name: &PlaceName) -> Option<&Place> {
        self.others.get(name)
    }

    /// Whether there is none beside the main one.
    pub(crate) fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// Notes that a place did not answer.
    pub(crate) fn note_failure(&self, name: &PlaceName) {
        let mut failed = self.failed.lock();
        let last = failed.get(name).map(|(at, lasting)| (at.elapsed(), *lasting));
        let lasting = match last {
            // Others have asked it meanwhile.
            Some((since, lasting)) if since < lasting => lasting,
            Some((since, lasting)) if since < lasting * 2 => LONGEST.min(lasting * 2),
            _ => AVOIDED,
        };
        failed.insert(name.clone(), (Instant::now(), lasting));
    }

    /// Whether a place has not answered a short while ago: others are asked first.
    pub(crate) fn is_avoided(&self, name: &PlaceName) -> bool {
        let failed = self.failed.lock();
        failed
            .get(name)
            .is_some_and(|(at, lasting)| at.elapsed() < *lasting)
    }
}

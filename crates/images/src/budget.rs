//! How much memory the indexes of images may take in this process, of one image and of all that are being prepared. It answers the
//! readers of every image and its memory is locked, so a manifest and a few hundred kilobytes of somebody's registry must not decide
//! how much it holds.
//!
//! Each image has an [`Account`] while it is prepared, which is asked before more is held: for fetched indexes, decoded ones, and
//! merging them ([`LayerIndex::weight`](xebec_format::layer::LayerIndex::weight)). An image that would take more than
//! `Limits::image` is refused by name. So is one for which there is no room beside others, but only if it is large: each image may
//! have `Limits::own`, whatever others hold, so that nobody keeps usual ones from starting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xebec_protocol::failure::{Failure, FailureKind};

/// All images together may take this part of the host's memory: the rest is for what runs in them.
const PART: u64 = 4;
/// And no more than this, on a host of any size: two of the largest images at a time.
const MOST: u64 = 4 << 30;
/// And always as much as this, on a host however small: an image with 200,000 files and 64 MiB to spare.
const LEAST: u64 = 256 << 20;
/// One image may take this part of what all may: half, so that no image alone keeps other large ones out. On a host with 16 GiB or
/// more that is 2 GiB. A file takes some 800 bytes, so that this is 2.5 million files; the largest images known have about two, and a
/// usual one of 3 GB has 25,600 files, which take 20 MB.
const IMAGE_PART: u64 = 2;
/// Bytes of an image that are not counted with others: some 80,000 files.
const OWN: u64 = 64 << 20;

/// How much may be held, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For all images, besides what each may have.
    all: u64,
    /// For one image.
    image: u64,
    /// For each image, in any case.
    own: u64,
}

impl Limits {
    /// The limits for this host's memory.
    fn of_host() -> Self {
        let host = rustix::system::sysinfo();
        let memory = u64::from(host.mem_unit).saturating_mul(host.totalram as u64);
        let all = (memory / PART).clamp(LEAST, MOST);
        Self {
            all,
            image: all / IMAGE_PART,
            own: OWN,
        }
    }
}

/// The memory of all images that are being prepared.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    /// Bytes of the part that is counted for all.
    held: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Limits::of_host())
    }
}

impl Budget {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: AtomicU64::new(0),
        }
    }

    /// Begins to count what an image takes.
    pub(super) fn open(self: &Arc<Self>, image: String) -> Arc<Account> {
        Arc::new(Account {
            budget: self.clone(),
            image,
            state: Mutex::default(),
        })
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.limits.all);
        let taken = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok()
    }
}

/// The memory of one image. All of it is given back when this goes.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    /// The image's name.
    image: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    /// It was refused something.
    refused: Option<Failure>,
}

/// Some bytes of an account, until this goes.
#[derive(Debug)]
#[must_use]
pub(super) struct Held {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// Whether so many bytes more may be held; then they count. Once they may not, nothing more may: the image is refused.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let limits = self.budget.limits;
        let mut state = self.state.lock();
        let held = state.held.saturating_add(bytes);
        let problem = if state.refused.is_some() {
            return false;
        } else if held > limits.image {
            self.too_large()
        } else if !self
            .budget
            .take(shared(held, limits.own) - shared(state.held, limits.own))
        {
            self.no_room()
        } else {
            state.held = held;
            return true;
        };
        state.refused = Some(Failure::new(FailureKind::Host, problem));
        false
    }

    /// So many bytes are held no more.
    pub(super) fn give(&self, bytes: u64) {
        let mut state = self.state.lock();
        let held = state.held.saturating_sub(bytes);
        let own = self.budget.limits.own;
        let less = shared(state.held, own) - shared(held, own);
        self.budget.held.fetch_sub(less, Ordering::AcqRel);
        state.held = held;
    }

    /// Holds so many bytes for a while; `None` if they may not be held.
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Option<Held> {
        self.take(bytes).then(|| Held {
            account: self.clone(),
            bytes,
        })
    }

    /// # Errors
    /// Why the image is refused, if it is.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.state.lock().refused.clone().map_or(Ok(()), Err)
    }

    fn too_large(&self) -> String {
        format!(
            "{} is refused: the indexes of its layers take more than {} MiB of memory, the limit for one image on this host. It has \
             some millions of files, or is made to look so; unpack it by other means, or use a host with more memory (an eighth of it \
             is the limit, up to 2 GiB)",
            self.image,
            self.budget.limits.image >> 20
        )
    }

    fn no_room(&self) -> String {
        format!(
            "{} is not started now: its layers' indexes are large, and with those of other images that are being started they would \
             take more than {} MiB of memory, the limit for all on this host; try again in a moment",
            self.image,
            self.budget.limits.all >> 20
        )
    }
}

/// The part of an image's bytes that is counted for all.
fn shared(held: u64, own: u64) -> u64 {
    held.saturating_sub(own)
}

impl Held {
    /// So many bytes more; false if they may not be held.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let may = self.account.take(bytes);
        if may {
            self.bytes += bytes;
        }
        may
    }

    /// Keeps so many of the bytes with the account, for as long as that is there; gives the others back.
    pub(super) fn keep(mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give(self.bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let held = self.state.lock().held;
        self.give(held);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn budget() -> Arc<Budget> {
        let limits = Limits {
            all: 100,
            image: 80,
            own: 10,
        };
        Arc::new(Budget::new(limits))
    }

    #[test]
    fn an_image_has_a_limit_of_its_own() {
        let budget = budget();
        let account = budget.open("example.com/large:1".to_owned());
        assert!(account.take(80));
        account.check().unwrap();
        assert!(!account.take(1));
        let failure = account.check().unwrap_err();
        assert!(
            failure.message.starts_with("example.com/large:1 is refused"),
            "{failure}"
        );
        // It is over with it, also if it gives something back.
        account.give(80);
        assert!(!account.take(1));
    }

    #[test]
    fn small_images_start_whatever_large_ones_hold() {
        let budget = budget();
        let large = [(), ()].map(|()| budget.open("large".to_owned()));
        assert!(large[0].take(80));
        assert!(!large[1].take(80), "two of them are more than all may have");
        let failure = large[1].check().unwrap_err();
        assert!(failure.message.contains("try again"), "{failure}");
        let small: Vec<_> = (0..5).map(|_| budget.open("small".to_owned())).collect();
        assert!(small.iter().all(|account| account.take(10)));
        drop(large);
        assert_eq!(budget.held.load(Ordering::Acquire), 0);
        let large = budget.open("large".to_owned());
        assert!(large.take(80));
    }

    #[test]
    fn what_is_held_for_a_while_is_given_back() {
        let budget = budget();
        let account = budget.open("image".to_owned());
        let mut held = account.hold(30).unwrap();
        assert!(held.grow(20) && !held.grow(31));
        held.keep(15);
        assert_eq!(account.state.lock().held, 15);
        assert_eq!(budget.held.load(Ordering::Acquire), 5);
        drop(account);
        assert_eq!(budget.held.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_host_has_room_for_usual_images() {
        let limits = Limits::of_host();
        assert!(limits.image >= LEAST / IMAGE_PART && limits.all <= MOST && limits.own < limits.image);
    }
}

//! How much may be stored under a prefix of repositories' names.
//!
//! A push is refused before its bytes come, by what it says that it will send, and while they come if it says nothing. What is under
//! way counts too, so that many pushes at once cannot each find the same room. Pushes do not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use xebec_settings::size;

/// `[[quota]]`: a limit on the distinct blobs of all repositories below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The leading components of the repositories' names; the empty one is all of them.
    pub prefix: String,
    /// The limit, in bytes.
    #[serde(deserialize_with = "size::bytes")]
    pub limit: u64,
}

/// More than a quota allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the repositories below {prefix:?} may hold {limit} bytes, {used} are used or on their way, and {wanted} more were to come; \
     delete something, or raise the limit ([[quota]])"
)]
pub struct QuotaExceeded {
    /// Below which prefix.
    pub prefix: String,
    /// The limit.
    pub limit: u64,
    /// What is stored and on its way.
    pub used: u64,
    /// What was to come.
    pub wanted: u64,
}

impl Quota {
    /// Whether the quota counts for a repository. A prefix is whole components: `team` has `team/app` below it, not `teams`.
    pub fn covers(&self, repository: &str) -> bool {
        let prefix = self.prefix.trim_end_matches('/');
        match repository.strip_prefix(prefix) {
            Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// All quotas, and what is on its way.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    quotas: Arc<Vec<Quota>>,
    /// By the quota's place in the list.
    coming: Arc<Mutex<HashMap<usize, u64>>>,
}

impl Quotas {
    /// With these.
    pub fn new(quotas: Vec<Quota>) -> Self {
        Self {
            quotas: Arc::new(quotas),
            coming: Arc::default(),
        }
    }

    /// Those that count for a repository. The caller asks the store how much each prefix uses.
    pub fn of(&self, repository: &str) -> Vec<&Quota> {
        self.quotas
            .iter()
            .filter(|quota| quota.covers(repository))
            .collect()
    }

    /// Makes room for `bytes` that are to come for a repository, if there is room. `used` tells what is stored below each prefix.
    /// The room is held until the answer is dropped, which is when the bytes are recorded, or came to nothing.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub fn admit(
        &self,
        repository: &str,
        bytes: u64,
        used: impl Fn(&Quota) -> u64,
    ) -> Result<Reservation, QuotaExceeded> {
        let of_it = self
            .quotas
            .iter()
            .enumerate()
            .filter(|(_, quota)| quota.covers(repository));
        let mut reservation = Reservation {
            quotas: self.clone(),
            counted: of_it.map(|(place, quota)| (place, used(quota))).collect(),
            held: 0,
        };
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

/// Room for bytes that are on their way.
#[derive(Debug)]
pub struct Reservation {
    quotas: Quotas,
    /// The quotas by place, and what was used when the push began.
    counted: Vec<(usize, u64)>,
    held: u64,
}

impl Reservation {
    /// Makes room for more, when more comes than was said.
    ///
    /// # Errors
    /// [`QuotaExceeded`]; what was held before is held on.
    pub fn grow(&mut self, bytes: u64) -> Result<(), QuotaExceeded> {
        let mut coming = self.quotas.coming.lock();
        for (place, stored) in &self.counted {
            let Some(quota) = self.quotas.quotas.get(*place) else {
                continue;
            };
            let used = stored.saturating_add(coming.get(place).copied().unwrap_or(0));
            // What needs no room is let through, though a limit was lowered below what is there.
            if bytes > 0 && used.saturating_add(bytes) > quota.limit {
                return Err(QuotaExceeded {
                    prefix: quota.prefix.clone(),
                    limit: quota.limit,
                    used,
                    wanted: bytes,
                });
            }
        }
        for (place, _) in &self.counted {
            let all = coming.entry(*place).or_default();
            *all = all.saturating_add(bytes);
        }
        self.held = self.held.saturating_add(bytes);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut coming = self.quotas.coming.lock();
        for (place, _) in &self.counted {
            if let Some(all) = coming.get_mut(place) {
                *all = all.saturating_sub(self.held);
            }
        }
    }
}

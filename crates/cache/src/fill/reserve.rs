//! Room first, then bytes: what could not be kept is not fetched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FillError, Filler, Phase, Progress};
use crate::room::{Answer, Promise};

/// How long a fetch waits for others to write what room was promised to them for.
const TAKEN_WAIT: Duration = Duration::from_secs(5);
/// How often it looks meanwhile.
const TAKEN_PAUSE: Duration = Duration::from_millis(20);

impl Filler {
    /// Has room promised for spans that are about to be fetched; if there is none, room is made.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        group: &[usize],
        progress: &Progress,
    ) -> Result<Promise, FillError> {
        let deadline = Instant::now() + TAKEN_WAIT;
        loop {
            let (bytes, free) = self.layer.room_for(group);
            match self.layer.room().promise(bytes, free) {
                Answer::Promised(promise) => return Ok(promise),
                Answer::Taken if Instant::now() < deadline => {
                    progress.enter(Phase::Disk);
                    tokio::time::sleep(TAKEN_PAUSE).await;
                }
                Answer::Taken | Answer::None => {
                    progress.enter(Phase::Disk);
                    return self.make_room(group, bytes).await;
                }
            }
        }
    }

    /// Has room made, and promised.
    async fn make_room(self: &Arc<Self>, group: &[usize], bytes: u64) -> Result<Promise, FillError> {
        let (filler, spans) = (self.clone(), group.to_vec());
        // This looks through the cache.
        let made = tokio::task::spawn_blocking(move || {
            let room = filler.layer.room();
            if !room.make(bytes) {
                return None;
            }
            let (bytes, free) = filler.layer.room_for(&spans);
            match room.promise(bytes, free) {
                Answer::Promised(promise) => Some(promise),
                Answer::Taken | Answer::None => {
                    room.made_in_vain();
                    None
                }
            }
        });
        let made = made.await.unwrap_or_default();
        made.ok_or_else(|| FillError::Disk {
            layer: self.layer.key().layer,
            span: group.first().copied().unwrap_or_default(),
            reason: format!("there is no room for {bytes} bytes"),
            full: true,
        })
    }
}

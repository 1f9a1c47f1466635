//! Room first, then bytes: bytes that could not be kept are not fetched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FillError, Filler};
use crate::progress::{Phase, Progress};
use crate::room::{Answer, Promise};

/// How long a fetch waits for others with promised room: until then they may have written, or need less than they asked for.
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
            let bytes = self.layer.room_for(group);
            let has_waited = Instant::now() >= deadline;
            match self.layer.room().promise(bytes, || self.layer.free(), has_waited) {
                Answer::Promised(promise) => return Ok(promise),
                Answer::Taken => {
                    progress.enter(Phase::Disk);
                    tokio::time::sleep(TAKEN_PAUSE).await;
                }
                Answer::None => {
                    progress.enter(Phase::Disk);
                    return self.make_room(group, bytes).await;
                }
            }
        }
    }

    /// Has room made, and promised.
    async fn make_room(self: &Arc<Self>, group: &[usize], bytes: u64) -> Result<Promise, FillError> {
        let (filler, spans) = (self.clone(), group.to_vec());
        // Not all at once: each would wait in a thread that could decode.
        let _turn = self.layer.room().turn().await;
        // This looks through the cache.
        let made = tokio::task::spawn_blocking(move || {
            let room = filler.layer.room();
            if !room.make(bytes) {
                return None;
            }
            let bytes = filler.layer.room_for(&spans);
            match room.promise(bytes, || filler.layer.free(), true) {
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

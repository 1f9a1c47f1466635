//! A registry's answer that is received on while nobody takes its bytes. Between the indexes at the front of a zone and its
//! pages a start decodes, judges and syncs, and a sender whose bytes nobody takes soon stops.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// How many bytes wait at most for being taken, and one part more: what 1 Gbit/s brings in 16 ms. A start takes them some 15 ms
/// after they were asked for.
const AHEAD: usize = 2 << 20;

/// The least room that a part counts for: it keeps the buffer that it came in, and is kept in lists.
const LEAST: usize = 16 << 10;

/// The receiving end of an answer.
pub(super) struct Receiving {
    parts: mpsc::UnboundedReceiver<Result<Part, String>>,
    room: Arc<Semaphore>,
    /// The only one in it ends with it.
    receiver: JoinSet<()>,
}

/// Some of the bytes.
pub(super) struct Part {
    /// The bytes.
    pub(super) bytes: Bytes,
    /// When they came; `None` after there was no room for a while, when the times say nothing about the sender.
    pub(super) came: Option<Instant>,
}

impl Receiving {
    /// Begins to receive. Must run inside a tokio runtime.
    pub(super) fn begin<E: std::fmt::Display + Send>(
        mut stream: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    ) -> Self {
        let (sender, parts) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(AHEAD));
        let mut receiver = JoinSet::new();
        let free = room.clone();
        receiver.spawn(async move {
            let mut was_full = false;
            while let Some(part) = stream.next().await {
                let came = (!was_full).then(Instant::now);
                let part = part.map_err(|error| error.to_string());
                if let Ok(bytes) = &part {
                    let room = room_of(bytes);
                    was_full |= free.available_permits() < room as usize;
                    // It is never closed.
                    let Ok(permit) = free.acquire_many(room).await else {
                        return;
                    };
                    permit.forget();
                }
                if sender.send(part.map(|bytes| Part { bytes, came })).is_err() {
                    return;
                }
            }
        });
        Self {
            parts,
            room,
            receiver,
        }
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// Why nothing more comes, for people.
    pub(super) async fn next(&mut self) -> Result<Option<Part>, String> {
        let Some(part) = self.parts.recv().await.transpose()? else {
            // Or it has panicked.
            let ended = self.receiver.join_next().await;
            return ended.map_or(Ok(None), |ended| {
                ended.map(|()| None).map_err(|error| error.to_string())
            });
        };
        self.room.add_permits(room_of(&part.bytes) as usize);
        Ok(Some(part))
    }
}

/// The room that a part counts for, however small or large it is.
fn room_of(bytes: &Bytes) -> u32 {
    bytes.len().clamp(LEAST, AHEAD) as u32
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::stream;

    use super::*;

    /// So many parts of this size, each of which is counted when it is asked for.
    fn parts(
        count: usize,
        size: usize,
    ) -> (
        Arc<AtomicUsize>,
        impl Stream<Item = Result<Bytes, Infallible>> + Send + Unpin,
    ) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let stream = stream::iter(0..count).map(move |number| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(Bytes::from(vec![number as u8; size]))
        });
        (asked, stream)
    }

    async fn until(asked: &AtomicUsize, count: usize) {
        for _ in 0..1000 {
            if asked.load(Ordering::SeqCst) >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // And no more.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(asked.load(Ordering::SeqCst), count);
    }

    #[tokio::test]
    async fn so_much_is_received_ahead_and_no_more() {
        // Eight of them fill the room; the ninth waits for some.
        let (asked, stream) = parts(20, AHEAD / 8);
        let mut receiving = Receiving::begin(stream);
        until(&asked, 9).await;
        for taken in 0..20 {
            let part = receiving.next().await.unwrap().unwrap();
            assert!(part.bytes.iter().all(|byte| usize::from(*byte) == taken));
            until(&asked, (10 + taken).min(20)).await;
        }
        assert!(receiving.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_part_that_is_larger_than_the_room_comes() {
        let (_, stream) = parts(3, 2 * AHEAD);
        let mut receiving = Receiving::begin(stream);
        for _ in 0..3 {
            assert_eq!(receiving.next().await.unwrap().unwrap().bytes.len(), 2 * AHEAD);
        }
        assert!(receiving.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_came_is_given_before_what_went_wrong() {
        let broken = stream::iter([Ok(Bytes::from_static(b"abc")), Err("the registry is gone")]);
        let mut receiving = Receiving::begin(broken);
        assert_eq!(receiving.next().await.unwrap().unwrap().bytes, "abc");
        assert_eq!(
            receiving.next().await.err().as_deref(),
            Some("the registry is gone")
        );
    }

    #[tokio::test]
    async fn small_parts_take_room_as_well() {
        let (asked, stream) = parts(1000, 1);
        let mut receiving = Receiving::begin(stream);
        until(&asked, AHEAD / LEAST + 1).await;
        let mut came = 0;
        while let Some(part) = receiving.next().await.unwrap() {
            came += part.bytes.len();
        }
        assert_eq!(came, 1000);
    }

    #[tokio::test]
    async fn when_parts_came_is_told_until_there_was_no_room() {
        let (asked, stream) = parts(6, AHEAD / 2);
        let mut receiving = Receiving::begin(stream);
        until(&asked, 3).await;
        for number in 0..6 {
            let part = receiving.next().await.unwrap().unwrap();
            // The third came in time, and then had no room.
            assert_eq!(part.came.is_some(), number < 3, "{number}");
        }
    }

    #[tokio::test]
    async fn nothing_is_received_for_nobody() {
        // One waits for room, one for its sender.
        let (asked, stream) = parts(20, AHEAD);
        let waits_for_room = Receiving::begin(stream);
        let token = Arc::new(());
        let held = token.clone();
        let waits_for_more =
            Receiving::begin(stream::pending::<Result<Bytes, Infallible>>().map(move |part| {
                let _ = &held;
                part
            }));
        until(&asked, 2).await;
        assert_eq!((Arc::strong_count(&asked), Arc::strong_count(&token)), (2, 2));
        drop((waits_for_room, waits_for_more));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((Arc::strong_count(&asked), Arc::strong_count(&token)), (1, 1));
    }

    #[tokio::test]
    async fn a_receiver_that_panics_is_no_end() {
        let stream = stream::iter([0]).map(|_| -> Result<Bytes, Infallible> { panic!("as it should") });
        let mut receiving = Receiving::begin(stream);
        assert!(receiving.next().await.is_err());
    }
}

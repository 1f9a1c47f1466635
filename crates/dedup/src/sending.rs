//! Sends units of a blob to a client, in small pieces, from memory that slow clients cannot keep.
//!
//! A request holds one unit while it is sent, and has the next ones made meanwhile: as many as there are processors for it, so that one client is served by all
//! processors, and many clients take turns. The memory of all units that are held is bounded. Where there is none left,
//! a request that has held its unit for some seconds loses it, however much its client takes of it: if the client goes on, the unit is made again.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::DedupError;
use crate::units::Unit;

/// Bytes that are given to a connection at once. They are copied, so that a connection that keeps them keeps no unit.
const PIECE: u64 = 64 << 10;
/// A client that has not taken a unit whole in this time may lose it to others.
const SLOW: Duration = Duration::from_secs(10);
/// How often it is looked for such clients while somebody waits for memory.
const LOOK: Duration = Duration::from_millis(200);
/// Memory is counted in pieces of this many bytes.
const COUNTED: u64 = 4096;

/// The memory for units that are sent.
pub(crate) struct Room {
    free: Arc<Semaphore>,
    most: u32,
    holders: Mutex<Vec<Weak<Holder>>>,
}

/// What one request holds.
#[derive(Default)]
struct Holder(Mutex<Option<Held>>);

struct Held {
    number: usize,
    bytes: Bytes,
    since: Instant,
    _room: OwnedSemaphorePermit,
}

impl Room {
    /// So many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let most = counted(bytes);
        Self {
            free: Arc::new(Semaphore::new(most as usize)),
            most,
            holders: Mutex::default(),
        }
    }

    fn holder(&self) -> Arc<Holder> {
        let holder = Arc::new(Holder::default());
        let mut holders = self.holders.lock();
        // Before the list grows, those that are gone leave it.
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(Arc::downgrade(&holder));
        holder
    }

    /// Room for so many bytes, or for all that there is if that is less.
    async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let wanted = counted(bytes).min(self.most);
        // One that lasts: whoever begins anew is the last of those who wait.
        let mut taken = pin!(self.free.clone().acquire_many_owned(wanted));
        loop {
            match tokio::time::timeout(LOOK, &mut taken).await {
                Ok(taken) => return taken.ok(),
                Err(_) => self.take_from_slow(),
            }
        }
    }

    fn take_from_slow(&self) {
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        for holder in holders {
            let mut held = holder.0.lock();
            if held.as_ref().is_some_and(|held| held.since.elapsed() >= SLOW) {
                *held = None;
            }
        }
    }
}

/// So many bytes as permits of a semaphore.
pub(crate) fn counted(bytes: u64) -> u32 {
    let pieces = bytes.div_ceil(COUNTED).clamp(1, Semaphore::MAX_PERMITS as u64);
    u32::try_from(pieces).unwrap_or(u32::MAX)
}

impl Holder {
    /// The bytes from a place in a unit on, at most a piece; nothing if another unit is held, or none.
    fn piece(&self, number: usize, from: u64, to: u64) -> Option<Bytes> {
        let held = self.0.lock();
        let held = held.as_ref().filter(|held| held.number == number)?;
        let to = to.min(from + PIECE);
        held.bytes
            .get(from as usize..to as usize)
            .map(Bytes::copy_from_slice)
    }
}

/// One of the next units, which is made while those before are made or sent. It is given up if nobody waits for it any more.
struct Ahead {
    number: usize,
    task: JoinHandle<()>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Sender<F, G> {
    room: Arc<Room>,
    units: Arc<[Unit]>,
    make: Arc<F>,
    range: Range<u64>,
    holder: Arc<Holder>,
    /// In order.
    ahead: VecDeque<Ahead>,
    guard: G,
}

/// What lasts as long as a request is sent, and knows how many others are.
pub(crate) trait Guard: Send + 'static {
    /// How many units may be made for this request at the same time, one at least.
    fn at_once(&self) -> usize;
}

/// The bytes of a range, in pieces. `make` makes a unit by its number.
pub(crate) fn send<F, U, G>(
    room: Arc<Room>,
    units: Arc<[Unit]>,
    range: Range<u64>,
    make: F,
    guard: G,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static
where
    F: Fn(usize) -> U + Send + Sync + 'static,
    U: Future<Output = Result<Bytes, DedupError>> + Send + 'static,
    G: Guard,
{
    let holder = room.holder();
    let sender = Sender {
        room,
        units,
        make: Arc::new(make),
        range,
        holder,
        ahead: VecDeque::new(),
        guard,
    };
    stream::try_unfold(sender, |mut sender| async move {
        Ok(sender.next().await?.map(|piece| (piece, sender)))
    })
}

impl<F, U, G> Sender<F, G>
where
    F: Fn(usize) -> U + Send + Sync + 'static,
    U: Future<Output = Result<Bytes, DedupError>> + Send + 'static,
    G: Guard,
{
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.range.is_empty() {
            return Ok(None);
        }
        let number = crate::units::within(&self.units, &self.range).start;
        let Some(unit) = self.units.get(number).map(|unit| unit.bytes.clone()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let (from, to) = (
            self.range.start - unit.start,
            self.range.end.min(unit.end) - unit.start,
        );
        let piece = match self.holder.piece(number, from, to) {
            Some(piece) => piece,
            None => {
                self.hold(number, unit.end - unit.start).await?;
                let piece = self.holder.piece(number, from, to);
                piece.ok_or(io::ErrorKind::UnexpectedEof)?
            }
        };
        self.range.start += piece.len() as u64;
        if self.range.start >= unit.end {
            *self.holder.0.lock() = None;
        }
        Ok(Some(piece))
    }

    /// Has a unit made, and those after it begun.
    async fn hold(&mut self, number: usize, length: u64) -> io::Result<()> {
        *self.holder.0.lock() = None;
        let at_once = self.guard.at_once();
        // It may be at work on this one, too.
        self.ahead.retain(|ahead| ahead.number >= number);
        self.begin(number + 1..number + at_once);
        let room = self.room.take(length).await;
        let room = room.ok_or_else(|| io::Error::other("nothing is restored any more"))?;
        let bytes = (self.make)(number).await.map_err(io::Error::from)?;
        *self.holder.0.lock() = Some(Held {
            number,
            bytes,
            since: Instant::now(),
            _room: room,
        });
        self.ahead.retain(|ahead| ahead.number > number);
        self.begin(number + 1..number + 1 + at_once);
        Ok(())
    }

    /// Has those of these units made that are asked for and were not begun yet.
    fn begin(&mut self, numbers: Range<usize>) {
        let first = self.ahead.back().map_or(numbers.start, |last| last.number + 1);
        for number in first..numbers.end {
            let unit = self.units.get(number);
            if unit.is_none_or(|unit| unit.bytes.start >= self.range.end) {
                break;
            }
            let make = self.make.clone();
            let task = tokio::spawn(async move {
                // A failure is told when the unit is asked for.
                let _ = make(number).await;
            });
            self.ahead.push_back(Ahead { number, task });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::cache::Cache;
    use crate::units::of_plain;

    const SIZE: u64 = 10 << 20;

    fn byte(at: u64) -> u8 {
        (at / 1000 % 251) as u8
    }

    fn sending(
        room: &Arc<Room>,
        range: Range<u64>,
        made: &Arc<Mutex<Vec<usize>>>,
    ) -> impl Stream<Item = io::Result<Bytes>> + use<> {
        let units: Arc<[Unit]> = of_plain(SIZE).into();
        let (all, made) = (units.clone(), made.clone());
        let make = move |number: usize| {
            made.lock().push(number);
            let unit = all[number].bytes.clone();
            async move { Ok(unit.map(byte).collect::<Vec<u8>>().into()) }
        };
        Box::pin(send(room.clone(), units, range, make, Processors(1)))
    }

    struct Processors(usize);

    impl Guard for Processors {
        fn at_once(&self) -> usize {
            self.0
        }
    }

    /// How many units are made at the same time for one client.
    async fn most_at_once(processors: usize) -> usize {
        let units: Arc<[Unit]> = of_plain(SIZE).into();
        let made: Arc<Cache<usize, Bytes>> = Arc::new(Cache::new(1 << 30));
        let (at_work, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let (all, counted) = (units.clone(), most.clone());
        let make = move |number: usize| {
            let (made, at_work, most) = (made.clone(), at_work.clone(), counted.clone());
            let unit = all[number].bytes.clone();
            let make = async move {
                {
                    let (mut at_work, mut most) = (at_work.lock(), most.lock());
                    *at_work += 1;
                    *most = at_work.max(*most);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                *at_work.lock() -= 1;
                Ok((unit.map(byte).collect::<Vec<u8>>().into(), 1))
            };
            async move { made.get(&number, &Mutex::default(), make).await }
        };
        let room = Arc::new(Room::new(64 << 20));
        let mut stream = Box::pin(send(room, units, 0..SIZE, make, Processors(processors)));
        while let Some(piece) = stream.next().await {
            piece.unwrap();
        }
        *most.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_units_are_made_at_once_as_there_are_processors() {
        for processors in [1, 2, 3] {
            assert_eq!(most_at_once(processors).await, processors);
        }
    }

    #[tokio::test]
    async fn a_range_comes_whole_and_in_small_pieces() {
        let (room, made) = (Arc::new(Room::new(64 << 20)), Arc::default());
        for range in [
            0..SIZE,
            5..6,
            (4 << 20) - 1..(4 << 20) + 1,
            7..7,
            (8 << 20) + 3..SIZE,
        ] {
            let mut all = Vec::new();
            let mut stream = sending(&room, range.clone(), &made);
            while let Some(piece) = stream.next().await {
                let piece = piece.unwrap();
                assert!(!piece.is_empty() && piece.len() as u64 <= PIECE);
                all.extend_from_slice(&piece);
            }
            assert!(all.into_iter().eq(range.map(byte)));
        }
        assert_eq!(room.free.available_permits(), room.most as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_stand_still_keep_no_others_waiting() {
        // Room for one unit.
        let (room, made) = (Arc::new(Room::new(1 << 18)), Arc::default());
        let mut slow = sending(&room, 0..SIZE, &made);
        let first = slow.next().await.unwrap().unwrap();
        let other = sending(&room, 0..4 << 20, &made).map(|piece| piece.unwrap().len() as u64);
        let begun = Instant::now();
        let sum = tokio::time::timeout(
            Duration::from_secs(600),
            other.fold(0, |sum, length| async move { sum + length }),
        )
        .await;
        assert_eq!(sum, Ok(4 << 20));
        assert!(begun.elapsed() >= SLOW - LOOK);
        // The slow one goes on where it was.
        let second = slow.next().await.unwrap().unwrap();
        let start = first.len() as u64;
        assert!(second.into_iter().eq((start..start + PIECE).map(byte)));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_take_little_now_and_then_keep_no_others_waiting() {
        // Room for one unit.
        let (room, made) = (Arc::new(Room::new(1 << 18)), Arc::default());
        let mut slow = sending(&room, 0..SIZE, &made);
        slow.next().await.unwrap().unwrap();
        let other = sending(&room, 0..4 << 20, &made).map(|piece| piece.unwrap().len() as u64);
        let other = tokio::spawn(other.fold(0, |sum, length| async move { sum + length }));
        // All its pieces take longer than a minute.
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            slow.next().await.unwrap().unwrap();
        }
        assert!(other.is_finished());
        assert_eq!(other.await.unwrap(), 4 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_keeps_the_place_in_the_queue() {
        let room = Arc::new(Room::new(4 << 20));
        let held = room.take(4 << 20).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waits = |bytes: u64| {
            let (room, order) = (room.clone(), order.clone());
            tokio::spawn(async move {
                let _taken = room.take(bytes).await.unwrap();
                order.lock().push(bytes);
            })
        };
        // It is waiting for longer than it looks for others that stand still.
        let first = waits(4 << 20);
        tokio::time::sleep(LOOK * 3 / 2).await;
        let second = waits(2 << 20);
        tokio::time::sleep(LOOK * 3 / 4).await;
        drop(held);
        first.await.unwrap();
        second.await.unwrap();
        assert_eq!(*order.lock(), [4 << 20, 2 << 20]);
    }
}

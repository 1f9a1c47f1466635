//! Reads an object from shards of it, of which some may be missing or fail while they are read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, future, stream};
use xebec_objects::worse;
use xebec_placement::Code;
use xebec_placement::erasure::{Layout, decode_stripes};

use crate::replicas::{Part, Replica};
use crate::store::Store;

/// So many bytes of an object are read at once, in whole stripes. Each takes memory twice: as units, and put together.
const AT_ONCE: u64 = 1 << 20;

/// The shards of an object by one code that are there: enough to put it together.
#[derive(Clone, Debug)]
pub(super) struct Shards {
    layout: Layout,
    /// By their numbers: a shard may be on several places.
    here: BTreeMap<u8, Vec<Replica>>,
}

impl Shards {
    /// For each code of which there are enough shards, all that there are.
    pub(super) fn complete(replicas: &[Replica]) -> Vec<Self> {
        let mut by_code: BTreeMap<Code, Self> = BTreeMap::new();
        for replica in replicas {
            let Part::Shard { code, index } = replica.part else {
                continue;
            };
            let shards = by_code.entry(code).or_insert_with(|| Self {
                layout: Layout::new(code, replica.whole),
                here: BTreeMap::new(),
            });
            shards.here.entry(index).or_default().push(replica.clone());
        }
        by_code.retain(|code, shards| shards.here.len() >= usize::from(code.data()));
        by_code.into_values().collect()
    }

    /// Whether there are enough of them without such replicas. Those are read last.
    pub(super) fn suffice_without(&self, is_avoided: impl Fn(&Replica) -> bool) -> bool {
        let others = self
            .here
            .values()
            .filter(|replicas| replicas.iter().any(|replica| !is_avoided(replica)));
        others.count() >= usize::from(self.layout.code().data())
    }

    /// How many bytes the object has.
    pub(super) fn size(&self) -> u64 {
        self.layout.size()
    }

    /// All that there are.
    pub(super) fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.here.values().flatten()
    }

    /// Nobody reads this replica again for now.
    fn give_up(&mut self, index: u8, key: &str) {
        if let Some(replicas) = self.here.get_mut(&index) {
            replicas.retain(|replica| replica.key != key);
        }
        self.here.retain(|_, replicas| !replicas.is_empty());
    }

    /// The stripes that have a byte of this range, some at a time.
    fn batches(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let stripe_of = |offset| self.layout.unit_of(offset).map(|unit| unit.stripe);
        let (Some(first), Some(last)) = (stripe_of(range.start), stripe_of(range.end.saturating_sub(1)))
        else {
            return Vec::new();
        };
        let stripe = self.layout.of_object(0);
        let step = (AT_ONCE / (stripe.end - stripe.start).max(1)).max(1);
        let starts = (first..=last).step_by(usize::try_from(step).unwrap_or(1));
        starts.map(|start| start..(start + step).min(last + 1)).collect()
    }
}

/// The bytes of a range of the object, in pieces. A shard that fails is left out from then on.
pub(super) fn pieces(
    store: Store,
    shards: Shards,
    range: Range<u64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let batches = if range.is_empty() {
        Vec::new()
    } else {
        shards.batches(&range)
    };
    let state = (store, shards, batches.into_iter());
    stream::try_unfold(state, move |(store, mut shards, mut batches)| {
        let range = range.clone();
        async move {
            let Some(stripes) = batches.next() else {
                return Ok(None);
            };
            let piece = batch(&store, &mut shards, stripes, &range).await?;
            Ok(Some((piece, (store, shards, batches))))
        }
    })
}

/// The part of a range that some stripes have.
async fn batch(
    store: &Store,
    shards: &mut Shards,
    stripes: Range<u64>,
    wanted: &Range<u64>,
) -> io::Result<Bytes> {
    let layout = shards.layout;
    let needed = usize::from(layout.code().data());
    let within =
        layout.within_shard(stripes.start).start..layout.within_shard(stripes.end.saturating_sub(1)).end;
    let mut read: BTreeMap<u8, Bytes> = BTreeMap::new();
    let mut failed = None;
    let is_avoided = |replica: &Replica| store.inner.places.is_avoided(&replica.place);
    while read.len() < needed {
        let mut next: Vec<Replica> = shards
            .here
            .iter()
            .filter(|(index, _)| !read.contains_key(index))
            .filter_map(|(_, replicas)| replicas.iter().min_by_key(|replica| is_avoided(replica)).cloned())
            .collect();
        // Data shards have the lowest numbers: bytes of these need not be computed. The order of those that are alike stays.
        next.sort_by_key(is_avoided);
        next.truncate(needed - read.len());
        if next.len() < needed - read.len() {
            return Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()));
        }
        let asked = next
            .iter()
            .map(|replica| read_part(store, replica, within.clone()));
        for (replica, part) in next.iter().zip(future::join_all(asked).await) {
            let Part::Shard { index, .. } = replica.part else {
                continue;
            };
            match part {
                Ok(part) => {
                    read.insert(index, part);
                }
                Err(error) => {
                    tracing::warn!(
                        "shard {index} of {} on {} cannot be read, and others are: {error}",
                        replica.object,
                        replica.place
                    );
                    store.look_into_soon(&replica.object, Some(replica), &error);
                    shards.give_up(index, &replica.key);
                    failed = Some(worse(failed, error));
                }
            }
        }
    }
    let begin = layout.of_object(stripes.start).start;
    let put_together = move || decode_stripes(layout, &read, stripes, within.start);
    let bytes = tokio::task::spawn_blocking(put_together).await;
    let bytes = Bytes::from(bytes.map_err(io::Error::other)?.map_err(io::Error::other)?);
    let end = begin + bytes.len() as u64;
    let cut = |offset: u64| usize::try_from(offset.clamp(begin, end) - begin).unwrap_or(usize::MAX);
    Ok(bytes.slice(cut(wanted.start)..cut(wanted.end)))
}

async fn read_part(store: &Store, replica: &Replica, range: Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut pieces = store.read_replica(replica, range).await?;
    let mut part = BytesMut::with_capacity(length);
    while let Some(piece) = pieces.next().await {
        part.extend_from_slice(&piece?);
    }
    match part.len() == length {
        true => Ok(part.freeze()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

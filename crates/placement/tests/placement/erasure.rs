use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use sha2::{Digest, Sha256};
use xebec_placement::Code;
use xebec_placement::erasure::{Layout, NotEnough, UNIT, decode_stripe, encode_stripe};

/// Bytes without a pattern that a code could hide behind, the same each time.
fn object(size: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}

fn shards_of(code: Code, object: &[u8]) -> Vec<Vec<u8>> {
    let layout = Layout::new(code, object.len() as u64);
    let mut shards = vec![Vec::new(); usize::from(code.shards())];
    for stripe in 0..layout.stripes() {
        let bytes = layout.of_object(stripe);
        let units = encode_stripe(code, &object[bytes.start as usize..bytes.end as usize]);
        assert_eq!(units.len(), shards.len());
        for (shard, unit) in shards.iter_mut().zip(units) {
            let within = layout.within_shard(stripe);
            assert_eq!(
                (shard.len() as u64, (shard.len() + unit.len()) as u64),
                (within.start, within.end)
            );
            shard.extend(unit);
        }
    }
    shards
}

/// The object of these shards alone.
fn object_of(code: Code, size: usize, shards: &[Vec<u8>], from: &[u8]) -> Result<Vec<u8>, NotEnough> {
    let layout = Layout::new(code, size as u64);
    let mut object = Vec::new();
    for stripe in 0..layout.stripes() {
        let within = layout.within_shard(stripe);
        let unit = |shard: u8| &shards[usize::from(shard)][within.start as usize..within.end as usize];
        let units: Vec<(u8, &[u8])> = from.iter().map(|shard| (*shard, unit(*shard))).collect();
        let bytes = layout.of_object(stripe);
        object.extend(decode_stripe(code, (bytes.end - bytes.start) as usize, &units)?);
    }
    Ok(object)
}

fn any_code() -> impl Strategy<Value = Code> {
    (1..=15_u8)
        .prop_flat_map(|data| (Just(data), 1..=16 - data))
        .prop_map(|(data, parity)| Code::new(data, parity).unwrap())
}

/// A size beside a boundary of a unit or a stripe, of up to three stripes.
fn edge(code: Code, units: usize, beside: usize) -> usize {
    let units = units % (2 * usize::from(code.data()) + 2);
    (units * UNIT as usize + beside).saturating_sub(3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_shards_that_suffice_give_the_object_back(
        code in any_code(), units in 0..40_usize, beside in 0..7_usize, order in Just((0..16_u8).collect::<Vec<u8>>()).prop_shuffle(),
    ) {
        let size = edge(code, units, beside);
        let object = object(size);
        let shards = shards_of(code, &object);
        let layout = Layout::new(code, size as u64);
        prop_assert!(shards.iter().all(|shard| shard.len() as u64 == layout.shard_size()));
        let order: Vec<u8> = order.into_iter().filter(|shard| *shard < code.shards()).collect();
        let (suffice, rest) = order.split_at(usize::from(code.data()));
        prop_assert_eq!(object_of(code, size, &shards, suffice), Ok(object.clone()));
        prop_assert_eq!(object_of(code, size, &shards, &order), Ok(object));
        let too_few = object_of(code, size, &shards, &suffice[1..]);
        prop_assert_eq!(too_few.is_err(), size > 0);
        prop_assert_eq!(rest.len(), usize::from(code.parity()));
    }

    #[test]
    fn each_byte_is_where_the_layout_says(code in any_code(), units in 0..40_usize, beside in 0..7_usize, at in any::<Index>()) {
        let size = edge(code, units, beside);
        let object = object(size);
        let layout = Layout::new(code, size as u64);
        prop_assert_eq!(layout.unit_of(size as u64), None);
        if size > 0 {
            let at = at.index(size);
            let unit = layout.unit_of(at as u64).unwrap();
            let shards = shards_of(code, &object);
            prop_assert!(unit.shard < code.data());
            prop_assert!(layout.of_object(unit.stripe).contains(&(at as u64)));
            prop_assert!(layout.within_shard(unit.stripe).contains(&unit.offset));
            prop_assert_eq!(shards[usize::from(unit.shard)][unit.offset as usize], object[at]);
        }
    }

    #[test]
    fn stripes_cover_objects_of_any_size(code in any_code(), size: u64, stripe: u64, at: u64) {
        let layout = Layout::new(code, size);
        let last = layout.stripes().saturating_sub(1);
        prop_assert_eq!(layout.of_object(last).end, size);
        prop_assert!(layout.of_object(layout.stripes()).is_empty());
        prop_assert!(layout.within_shard(layout.stripes()).is_empty());
        let all = u128::from(layout.shard_size()) * u128::from(code.data());
        // Each unit of the last stripe may have one byte more than its share, and one to be even.
        prop_assert!(all + 2 * 16 >= u128::from(size) && all < u128::from(size) + 2 * 16);
        prop_assert!(layout.of_object(stripe).end <= size && layout.within_shard(stripe).end <= layout.shard_size());
        prop_assert_eq!(layout.unit_of(at).is_some(), at < size);
    }

    #[test]
    fn wrong_units_are_left_out(
        code in any_code(), len in 0..300_usize, wrong in prop::collection::vec((any::<u8>(), 0..200_usize), 0..20), order in subsequence((0..16_u8).collect::<Vec<u8>>(), 0..=16),
    ) {
        let stripe = object(len);
        let units = encode_stripe(code, &stripe);
        let right = units[0].len();
        let bytes = [0xee; 200];
        // Units of unknown shards, and of a wrong length; then some of the right ones, twice.
        let wrong = wrong.iter().filter(|(shard, len)| *shard >= code.shards() || *len != right);
        let mut given: Vec<(u8, &[u8])> = wrong.map(|(shard, len)| (*shard, &bytes[..*len])).collect();
        let order = order.iter().filter(|shard| **shard < code.shards());
        let sound: Vec<(u8, &[u8])> = order.map(|shard| (*shard, units[usize::from(*shard)].as_slice())).collect();
        given.extend(sound.iter().chain(&sound));
        let needs = code.data();
        match decode_stripe(code, len, &given) {
            Ok(back) => {
                prop_assert!(sound.len() >= usize::from(needs));
                prop_assert_eq!(back, stripe);
            }
            Err(error) => prop_assert_eq!(error, NotEnough { have: sound.len(), needs, len }),
        }
    }
}

#[test]
fn an_absurd_length_takes_no_memory() {
    let code = Code::new(2, 1).unwrap();
    for len in [usize::MAX, usize::MAX - 1, 1 << 60] {
        let error = decode_stripe(code, len, &[(0, b"ab"), (1, b"cd")]).unwrap_err();
        assert_eq!(error.have, 0);
    }
}

/// Shards of version 1 are stored, and read for ever. SHA-256 of the shards of an object, one after the other. Another library, in Go, made the
/// same ones (`docs/formats/erasure.md`).
const GOLDEN: [(&str, usize, &str); 6] = [
    (
        "1+1",
        1,
        "e91e228d26bf0f6208b47fa93b2eef6abd3b689c3d786910d0be949b3ef0b84b",
    ),
    (
        "2+1",
        11,
        "23d7ad7ab9dd29a49b60be2bcb5cda22cc0df5e1b98efba223d9b1878163a24c",
    ),
    (
        "2+1",
        3 * 65_536 + 1,
        "3edbf30e25285869f4f4a4c411545f1f964d5d6cfbacd6d6ef1cc9073cbd4e06",
    ),
    (
        "4+2",
        4 * 65_536,
        "d5cb5af8f6caa8c32736d03efbe7db5dc9caf8c4911441c7b4b379b4a775c6ba",
    ),
    (
        "3+5",
        100_003,
        "966ff5cf7808bd2e8345942bd6cea40d106c66e88f61dc138dcfdba190fe3162",
    ),
    (
        "10+6",
        700_001,
        "27c38eb79bf05dea3b85fcabf0bafee0555d1b628f7e9b50f92d97955525c766",
    ),
];

#[test]
fn shards_of_version_1_are_made_as_ever() {
    let made = GOLDEN.map(|(code, size, _)| {
        let shards = shards_of(code.parse().unwrap(), &object(size));
        (code, size, hex::encode(Sha256::digest(shards.concat())))
    });
    let golden = GOLDEN.map(|(code, size, digest)| (code, size, digest.to_owned()));
    assert_eq!(made, golden);
}

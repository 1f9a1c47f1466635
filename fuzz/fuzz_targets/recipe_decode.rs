//! Any bytes as a recipe, with the right magic and digest: refused, or written again as a recipe that is the same; and the parts of ranges are in them.
#![no_main]

use xebec_recipe::{ChunkId, Limits, Recipe};

const LIMITS: Limits = Limits { most: 64 << 20 };

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut bytes = b"XBRECIPE\x01\x00\x00\x00".to_vec();
    bytes.extend_from_slice(input);
    let digest = ChunkId::of(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    let Ok(recipe) = Recipe::from_bytes(&bytes, &LIMITS) else {
        return;
    };
    let length: u64 = recipe.parts().map(|part| part.length()).sum();
    assert_eq!(length, recipe.plain_size());
    let range = length / 3..length / 3 + length / 2;
    let within: u64 = recipe
        .parts_in(range.clone())
        .map(|part| part.within.end - part.within.start)
        .sum();
    assert_eq!(within, range.end - range.start);
    if recipe.inline_size() < 1 << 20 && recipe.description().len() < 1 << 20 {
        let again = Recipe::from_bytes(&recipe.to_bytes(), &LIMITS);
        assert!(again == Ok(recipe), "the recipe does not come back");
    }
});

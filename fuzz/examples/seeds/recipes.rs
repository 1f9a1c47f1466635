//! Recipes and packs.

use xebec_recipe::{Blob, Cutter, Limits, Options, PackWriter, Piece, RecipeBuilder, Splitter};

use crate::archives::archives;
use crate::output::{Failure, put};

/// Recipes and packs of small archives, without the magic and the digests that the targets add.
pub(crate) fn recipes() -> Result<(), Failure> {
    for (name, archive) in archives() {
        put("recipe_split", name, &[&[0x05], &archive[..]].concat())?;
        let mut builder = RecipeBuilder::new(Limits::default());
        let mut writer = PackWriter::new(Options {
            level: 3,
            frame_size: 4096,
        });
        let mut is_taken = true;
        let mut sink = |piece: Piece<'_>| {
            let id = builder.add(piece);
            if let (Ok(Some(id)), Piece::Chunk { bytes, hint }) = (id, piece) {
                is_taken &= writer.add(id, bytes, hint).is_ok();
            }
            is_taken &= id.is_ok();
        };
        let mut splitter = Splitter::new(Cutter::Files);
        splitter.write(&archive, &mut sink);
        splitter.finish(&mut sink);
        let recipe = builder.finish(Blob::default(), Vec::new())?.to_bytes();
        let pack = writer.finish()?.bytes;
        let recipe = recipe.get(12..recipe.len() - 32).ok_or("a short recipe")?;
        let pack = pack.get(12..pack.len() - 44).ok_or("a short pack")?;
        if !is_taken {
            return Err("a piece was refused".into());
        }
        put("recipe_decode", name, recipe)?;
        put("pack_decode", name, pack)?;
    }
    Ok(())
}

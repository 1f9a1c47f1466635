//! Writes a recipe.

use sha2::{Digest, Sha256};

use super::{MAGIC, VERSION, frame, parts};
use crate::numbers::put;
use crate::recipe::Recipe;
use crate::section::put_section;

impl Recipe {
    /// The recipe in bytes (`docs/formats/recipe.md`). Takes up to twice as much memory as the recipe.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        put(self.blob.digest.len() as u64, &mut bytes);
        bytes.extend_from_slice(self.blob.digest.as_bytes());
        let counts = [self.entries.len(), self.chunks.len(), self.inline.len()].map(|count| count as u64);
        for number in [self.blob.size, self.plain_size()].into_iter().chain(counts) {
            put(number, &mut bytes);
        }
        put_section(&self.description, &mut bytes);
        for (id, _) in &self.chunks {
            bytes.extend_from_slice(id.as_bytes());
        }
        for column in parts::columns(self) {
            put_section(&column, &mut bytes);
        }
        for column in self.frame().all() {
            put_section(column, &mut bytes);
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// The frame in columns.
    fn frame(&self) -> frame::Columns<Vec<u8>> {
        let mut encoder = frame::Encoder::new();
        let mut rest = &self.inline[..];
        for span in parts::spans(&self.entries) {
            let (own, others) = rest.split_at_checked(span.length).unwrap_or((rest, &[]));
            encoder.span(span, own);
            rest = others;
        }
        encoder.finish()
    }
}

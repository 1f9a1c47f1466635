//! How blobs are taken apart and restored.

use xebec_placement::Form;

/// How files are cut into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cutting {
    /// A file is a chunk; of a large one, each 8 MiB.
    #[default]
    Files,
    /// Large files are cut where their contents say so: files that differ a little have most chunks in common.
    Contents,
}

impl Cutting {
    /// The same as rules for copies and records of recipes call it.
    pub fn form(self) -> Form {
        match self {
            Self::Files => Form::Files,
            Self::Contents => Form::Chunks,
        }
    }
}

/// How blobs are taken apart and restored.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Blobs that are taken apart at the same time.
    pub jobs: usize,
    /// Blobs with fewer bytes stay intact: a recipe and a pack would save little.
    pub least_size: u64,
    /// Plain bytes that a blob may have.
    pub most_plain: u64,
    /// How files are cut.
    pub cutting: Cutting,
    /// How hard packs are compressed: the level of zstd.
    pub level: i32,
    /// Whether a blob stays intact beside its recipe.
    pub keep_intact: bool,
    /// Whether threads that take blobs apart have a low priority. On a busy machine they come to nothing then.
    pub gives_way: bool,
    /// Decompressed frames of packs that are kept in memory, in bytes.
    pub frames: u64,
    /// Restored parts of blobs that are kept in memory, in bytes.
    pub restored: u64,
    /// Restored parts of blobs that are being sent, in bytes.
    pub sending: u64,
    /// Opened recipes and indexes of packs that are kept in memory, in bytes: half of it each.
    pub recipes: u64,
    /// Memory of all restoring that is under way, in bytes.
    pub working: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            jobs: 1,
            least_size: 64 << 10,
            most_plain: 64 << 30,
            cutting: Cutting::Files,
            level: 9,
            keep_intact: false,
            gives_way: true,
            frames: 128 << 20,
            restored: 64 << 20,
            sending: 64 << 20,
            recipes: 64 << 20,
            working: 256 << 20,
        }
    }
}

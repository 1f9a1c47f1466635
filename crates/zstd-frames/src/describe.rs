//! Takes a stream of zstd frames apart into plain bytes and stretches of corrections.

use super::InvalidZstd;
use super::block::{Carried, literals_of};
use super::corrections::damaged::Damaged;
use super::corrections::{Place, Scribe};
use super::frame::Frame;
use super::guess::profile::Profile;
use super::range_coder::Writer;
use super::reader::{Body, Item, Reader};
use super::sequences::Told;

/// A stretch ends at the first block after so many items.
const ITEMS_MOST: usize = 1 << 14;

/// Profiles are tried on so many compressed blocks, and those that are left on more.
const TRIED: usize = 1;
const TRIED_MORE: usize = 6;
/// Corrections of so many bytes and one for so many of what is compressed are as short as they can be.
const FEW: usize = 60;
const FEW_OF: usize = 400;
/// If the corrections are more than one of so many bytes of a stretch, other profiles are tried.
const MANY: usize = 200;

/// How a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Plain bytes of a stretch, or a block more.
    pub stretch: usize,
    /// Plain bytes before a stretch that it may ask for.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stretch: 4 << 20,
            history: 2 << 20,
        }
    }
}

/// A part of the stream that can be made again by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// Its plain bytes.
    pub plain: &'a [u8],
    /// How many bytes of the stream it has.
    pub compressed: usize,
    /// The corrections.
    pub corrections: Vec<u8>,
}

/// Why a stream cannot be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It is no stream of frames, or none that is taken.
    #[error(transparent)]
    Invalid(#[from] InvalidZstd),
    /// The corrections do not say what they should.
    #[error("the corrections cannot be made")]
    Corrections(#[from] Damaged),
}

/// Takes a stream apart.
#[derive(Debug)]
pub struct Describer {
    options: Options,
    reader: Reader,
    /// Plain bytes: the window or the history, whichever is longer, and those of the stretch.
    plain: Vec<u8>,
    /// Where the plain bytes of the stretch begin in `plain`.
    start: usize,
    /// The items of the stretch, and how many bytes they have in the stream.
    items: Vec<Item>,
    compressed: usize,
    /// Where the stretch begins.
    place: Place,
    usual: usize,
    search: Search,
}

impl Describer {
    /// At the beginning of a stream.
    pub fn new(options: Options) -> Describer {
        Describer {
            options,
            reader: Reader::default(),
            plain: Vec::new(),
            start: 0,
            items: Vec::new(),
            compressed: 0,
            place: Place::default(),
            usual: super::BLOCK_MOST,
            search: Search::default(),
        }
    }

    /// Reads on, and gives away each stretch that is complete.
    pub fn push(&mut self, mut input: &[u8], give: &mut dyn FnMut(Stretch<'_>)) -> Result<(), Failure> {
        loop {
            let carried = self.reader.carried.clone();
            let left = input.len();
            let item = self.reader.read(&mut input, &mut self.plain)?;
            self.compressed += left - input.len();
            let Some(item) = item else { return Ok(()) };
            self.take(item, carried);
            let plain = self.plain.len() - self.start;
            if plain.max(self.compressed) >= self.options.stretch || self.items.len() >= ITEMS_MOST {
                self.end_stretch(give)?;
            }
        }
    }

    /// The input has ended: gives away the last stretch.
    pub fn finish(mut self, give: &mut dyn FnMut(Stretch<'_>)) -> Result<(), Failure> {
        if !self.reader.is_between_frames() {
            return Err(InvalidZstd::Truncated.into());
        }
        if !self.items.is_empty() {
            self.end_stretch(give)?;
        }
        Ok(())
    }

    /// Keeps an item, a block by its bytes where it would not be made again.
    fn take(&mut self, item: Item, before: Carried) {
        let item = match item {
            Item::Block(mut block) => {
                if let Body::Compressed(compressed, bytes) = &mut block.body {
                    let plain = &self.plain[self.plain.len() - block.size..];
                    let (mut literals, mut written) = (Vec::new(), Vec::with_capacity(bytes.len()));
                    literals_of(plain, &compressed.sequences, &mut literals);
                    let mut carried = before;
                    let is_told = compressed.write(&literals, &mut carried, &mut written);
                    let bytes = std::mem::take(bytes);
                    if is_told.is_none() || written != bytes {
                        block.body = Body::Verbatim(bytes, Box::new(self.reader.carried.clone()));
                    }
                }
                if !block.is_last {
                    self.usual = block.size.max(1);
                }
                Item::Block(block)
            }
            other => other,
        };
        self.items.push(item);
    }

    fn end_stretch(&mut self, give: &mut dyn FnMut(Stretch<'_>)) -> Result<(), Failure> {
        let mut place = std::mem::take(&mut self.place);
        leave_out_unneeded(&mut place.carried, &self.items);
        let wanted = usize::try_from(place.position)
            .unwrap_or(usize::MAX)
            .min(self.options.history);
        let history = self.start.min(wanted);
        let (text, start) = (&self.plain[self.start - history..], history);
        let trial = Trial {
            place: &place,
            text,
            start,
            items: &self.items,
        };
        let (profile, corrections) = self.search.corrections(&trial, self.compressed)?;
        let mut bytes = vec![profile.family, profile.level.to_le_bytes()[0]];
        bytes.extend_from_slice(&(history as u32).to_le_bytes());
        bytes.extend(corrections);
        give(Stretch {
            plain: &self.plain[self.start..],
            compressed: self.compressed,
            corrections: bytes,
        });
        self.items.clear();
        self.compressed = 0;
        self.place = Place {
            frame: self.reader.frame(),
            position: if self.reader.is_between_frames() {
                0
            } else {
                self.reader.position()
            },
            carried: self.reader.carried.clone(),
            usual: self.usual,
        };
        let keep = usize::try_from(self.reader.frame().window)
            .unwrap_or(usize::MAX)
            .max(self.options.history);
        if self.plain.len() > keep.saturating_mul(3) / 2 + self.options.stretch {
            self.plain.drain(..self.plain.len() - keep);
        }
        self.start = self.plain.len();
        Ok(())
    }
}

/// Takes away what the blocks do not repeat.
fn leave_out_unneeded(carried: &mut Carried, items: &[Item]) {
    use super::block::LiteralsKind;
    let (mut code, mut tables) = (None, [None; 3]);
    for item in items {
        let Item::Block(block) = item else { break };
        match &block.body {
            Body::Compressed(compressed, _) => {
                match compressed.kind {
                    LiteralsKind::Coded(_) => code = code.or(Some(false)),
                    LiteralsKind::Repeat => code = code.or(Some(true)),
                    _ => {}
                }
                if !compressed.sequences.is_empty() {
                    for (table, told) in tables.iter_mut().zip(&compressed.tables) {
                        *table = table.or(Some(*told == Told::Repeat));
                    }
                }
            }
            Body::Verbatim(..) => break,
            _ => {}
        }
    }
    if code != Some(true) {
        carried.code = None;
    }
    for (table, needed) in carried.tables.iter_mut().zip(tables) {
        if needed != Some(true) {
            *table = None;
        }
    }
}

/// Looks for the profile of a stream.
#[derive(Debug, Default)]
struct Search {
    profile: Option<Profile>,
    /// For so many stretches no other profile is tried, and for how many the next time that trying was of no use.
    patience: u32,
    patience_next: u32,
}

impl Search {
    /// The corrections of a stretch of so many bytes, and by which profile.
    fn corrections(&mut self, trial: &Trial<'_>, compressed: usize) -> Result<(Profile, Vec<u8>), Damaged> {
        let likely = Profile::likely(&trial.frame());
        let mut profile = match self.profile {
            Some(profile) => profile,
            None => {
                let (profile, _) = trial.best(&likely, TRIED)?.unwrap_or((Profile::UNKNOWN, false));
                let (profile, _) = trial
                    .best(&profile.variants(), TRIED_MORE)?
                    .unwrap_or((profile, false));
                profile
            }
        };
        let mut corrections = trial.write(profile, trial.items.len())?;
        if self.profile.is_none() || corrections.len() <= FEW + compressed / MANY {
            self.profile = Some(profile);
        } else if self.patience > 0 {
            self.patience -= 1;
        } else {
            let mut better = trial.best(&profile.variants(), TRIED_MORE)?;
            if !better.is_some_and(|(_, is_short)| is_short) && corrections.len() > 4 * compressed / MANY {
                let others: Vec<Profile> = better.iter().map(|(profile, _)| *profile).chain(likely).collect();
                better = trial.best(&others, TRIED_MORE)?;
            }
            let better = better.map_or(profile, |(profile, _)| profile);
            if better == profile {
                self.patience_next = self.patience_next * 2 + 1;
                self.patience = self.patience_next;
            } else {
                self.patience_next = 0;
                profile = better;
                corrections = trial.write(profile, trial.items.len())?;
                self.profile = Some(profile);
            }
        }
        Ok((profile, corrections))
    }
}

/// A stretch for which profiles are tried.
struct Trial<'a> {
    place: &'a Place,
    text: &'a [u8],
    start: usize,
    items: &'a [Item],
}

impl Trial<'_> {
    /// The frame that the stretch begins in or with.
    fn frame(&self) -> Frame {
        match self.items.iter().find(|item| !matches!(item, Item::Other(_))) {
            Some(Item::Head(head)) => Frame::read(head).unwrap_or_default(),
            _ => self.place.frame,
        }
    }

    /// How many items there are up to the compressed block of this number, and how many bytes those blocks have.
    fn first(&self, blocks: usize) -> (usize, usize) {
        let compressed = self
            .items
            .iter()
            .enumerate()
            .filter_map(|(number, item)| match item {
                Item::Block(block) => match &block.body {
                    Body::Compressed(_, bytes) => Some((number, bytes.len())),
                    _ => None,
                },
                _ => None,
            });
        compressed
            .take(blocks)
            .fold((0, 0), |(_, sum), (number, length)| (number + 1, sum + length))
    }

    /// The profile whose corrections of the first blocks are the shortest, and whether they are short.
    fn best(&self, profiles: &[Profile], blocks: usize) -> Result<Option<(Profile, bool)>, Damaged> {
        let (items, compressed) = self.first(blocks);
        let mut best: Option<(usize, Profile)> = None;
        for &profile in profiles {
            let length = self.write(profile, items)?.len();
            if best.is_none_or(|(shortest, _)| length < shortest) {
                best = Some((length, profile));
            }
            if length < FEW + compressed / FEW_OF {
                return Ok(Some((profile, true)));
            }
        }
        Ok(best.map(|(_, profile)| (profile, false)))
    }

    /// The corrections of the first items.
    fn write(&self, profile: Profile, items: usize) -> Result<Vec<u8>, Damaged> {
        let mut scribe = Scribe::begin(Writer::default(), profile, self.place, self.text, self.start)?;
        let (mut at, mut output) = (self.start, Vec::new());
        for item in &self.items[..items] {
            output.clear();
            at += scribe.item(self.text, at, Some(item), &mut output)?.unwrap_or(0);
        }
        scribe.item(self.text, at, None, &mut output)?;
        Ok(scribe.coder.finish())
    }
}

//! Feeds the matcher: takes plain bytes in pieces of any size, moves the window as the originals do when they get their input whole, and resumes.

use super::matcher::{AHEAD, HELD, Matcher};
use super::parse::{Candidate, Choice, Parse};
use super::settings::{End, Settings};
use crate::encoders::{Cut, Output};
use crate::format::WINDOW;

/// From this place on the window moves.
const TURN: usize = HELD - AHEAD;

/// zlib's or GNU gzip's deflate on one stream.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    settings: Settings,
    parse: Parse,
    /// A resumed encoder repeats tokens before the cut, only to fill its chains, up to this place.
    rehearsal_end: Option<usize>,
}

impl Engine {
    /// An engine at the beginning of a stream, which may copy from the last 32 KiB of `dictionary`.
    pub(crate) fn new(settings: Settings, dictionary: &[u8]) -> Engine {
        let matcher = Matcher::new(settings.hash_bits);
        let mut parse = Parse::new(matcher, settings.capacity, settings.choice, settings.effort);
        let dictionary = &dictionary[dictionary.len().saturating_sub(WINDOW)..];
        parse.reset(dictionary, dictionary.len());
        Engine {
            settings,
            parse,
            rehearsal_end: None,
        }
    }

    /// The same as a [`Engine::restart`]ed engine, after so many plain bytes.
    pub(crate) fn new_at(settings: Settings, history: &[u8], plain: u64) -> Engine {
        let mut engine = Engine::new(settings, history);
        engine.parse.plain = plain;
        engine
    }

    /// Goes on as a new engine does whose dictionary is what was written.
    pub(crate) fn restart(&mut self) {
        let history = self.history().to_vec();
        self.parse.reset(&history, history.len());
    }

    /// Goes on at a cut after a full block, or one with [`Engine::state`]. `every`: all input was written each time that this many bytes were
    /// taken.
    ///
    /// A lazy matcher has all places in its chains, so 32 KiB of history are enough for it. A greedy one leaves some out, depending on its copies:
    /// it runs over the history, and soon makes the same copies as before.
    pub(crate) fn resume(
        settings: Settings,
        every: Option<u64>,
        history: &[u8],
        cut: &Cut,
    ) -> Option<Engine> {
        let &[offset, first, second] = cut.state.as_slice() else {
            return None;
        };
        let offset = usize::try_from(offset).ok().filter(|&offset| offset <= HELD)?;
        let mut engine = Engine::new(settings, &[]);
        match settings.choice {
            Choice::Lazy { .. } => {
                let kept = history.len().min(offset).min(WINDOW);
                let kept = &history[history.len() - kept..];
                engine.parse.reset(kept, offset);
                engine.parse.resumed = Candidate::of_state(first, second)?;
            }
            Choice::Greedy { .. } => {
                // Negative if the history has a dictionary before the plain bytes.
                let begin = (cut.plain as i64).wrapping_sub(history.len() as i64);
                engine.begin_rehearsal(history.len(), offset);
                engine.rehearse(history, begin, every);
                if first > 0 {
                    engine.run_to_end(&mut Output::default());
                }
            }
        }
        if cut.plain > offset as u64 {
            engine.parse.matcher.repeat_after_end();
        }
        engine.parse.plain = cut.plain;
        Some(engine)
    }

    /// Prepares for history of this length, which ends at this offset of the window.
    fn begin_rehearsal(&mut self, length: usize, offset: usize) {
        let begin = match offset.checked_sub(length) {
            Some(begin) => begin,
            None => (WINDOW - (length - offset) % WINDOW) % WINDOW,
        };
        self.parse.reset(&[], begin);
        self.parse.is_rehearsal = true;
        self.rehearsal_end = Some(begin + length);
    }

    /// Makes the tokens of history, which begins after so many plain bytes.
    fn rehearse(&mut self, mut history: &[u8], mut plain: i64, every: Option<u64>) {
        let mut nothing = Output::default();
        while let Some(every) = every {
            let left = every - plain.rem_euclid(every as i64) as u64;
            let Some((piece, rest)) = history.split_at_checked(left as usize) else {
                break;
            };
            if rest.is_empty() {
                break;
            }
            self.write(piece, &mut nothing);
            self.run_to_end(&mut nothing);
            (history, plain) = (rest, plain + piece.len() as i64);
        }
        self.write(history, &mut nothing);
    }

    /// Takes plain bytes, and writes the blocks that get full.
    pub(crate) fn write(&mut self, mut plain: &[u8], output: &mut Output) {
        loop {
            // The window is full where this is so: its end is never further than `AHEAD` from here.
            if self.parse.at > TURN {
                self.slide();
            }
            let taken = self.parse.matcher.fill(plain);
            plain = &plain[taken..];
            self.parse.catch_up();
            self.run((self.parse.matcher.end + 1).saturating_sub(AHEAD), output);
            if plain.is_empty() {
                return;
            }
        }
    }

    /// Writes a block of all that was taken, if there is anything (zlib's `Z_BLOCK`).
    pub(crate) fn end_block(&mut self, output: &mut Output) {
        self.run_to_end(output);
        if !self.parse.block.is_empty() {
            self.parse.write_block(self.parse.at, false, output);
        }
    }

    /// Writes all that was taken as the last block.
    pub(crate) fn finish(&mut self, output: &mut Output) {
        self.run_to_end(output);
        self.parse.write_block(self.parse.at, true, output);
        output.bits.align();
    }

    /// How many plain bytes were written, after [`Engine::end_block`].
    pub(crate) fn plain(&self) -> u64 {
        self.parse.plain
    }

    /// The state of a cut after [`Engine::end_block`].
    pub(crate) fn state(&self) -> Vec<u64> {
        let is_end = matches!(self.settings.choice, Choice::Greedy { .. });
        vec![self.parse.at as u64, u64::from(is_end), 0]
    }

    /// The last 32 KiB of plain bytes, if all that was taken is written.
    fn history(&self) -> &[u8] {
        let end = self.parse.at;
        self.parse.matcher.plain(end.saturating_sub(WINDOW)..end)
    }

    fn slide(&mut self) {
        self.parse.slide();
        if let Some(end) = &mut self.rehearsal_end {
            *end = end.saturating_sub(WINDOW);
        }
    }

    /// Makes tokens up to a place; from the end of a rehearsal on, in earnest.
    fn run(&mut self, until: usize, output: &mut Output) {
        if let Some(end) = self.rehearsal_end {
            self.parse.run(until.min(end), output);
            if self.parse.at < end {
                return;
            }
            self.rehearsal_end = None;
            self.parse.is_rehearsal = false;
            if self.parse.at > end {
                // A copy of the rehearsal reaches over the end, so it was not what the original did. No one can tell what the chains had.
                self.parse.begin(end, end.min(WINDOW));
            }
            self.parse.block.clear();
            self.parse.block_begin = end as isize;
        }
        self.parse.run(until, output);
    }

    /// Makes tokens of all that was taken.
    fn run_to_end(&mut self, output: &mut Output) {
        let end = self.parse.matcher.end;
        self.run((end + 1).saturating_sub(AHEAD), output);
        match self.settings.end {
            End::Zlib => loop {
                if self.parse.at >= TURN {
                    self.slide();
                }
                let end = self.parse.matcher.end;
                self.run(end.min(TURN), output);
                if self.parse.at == end {
                    break;
                }
            },
            End::Gzip => {
                if self.parse.at >= TURN {
                    self.slide();
                }
                self.parse.matcher.zero_after_end();
                self.run(self.parse.matcher.end, output);
            }
        }
        self.parse.close_candidate();
        self.parse.behind = self.parse.at.min(2);
    }
}

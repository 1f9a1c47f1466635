//! What an encoder does with the places that it passes: which of them it enters, so that later copies come from there. It shows by the copies.

use super::model::Bit;
use super::range::ONE;
use xebec_deflate::format::WINDOW;

/// What a place was: the beginning of a literal, or how far it is from the beginning or the end of its copy.
const CLASSES: usize = 64;
/// A place of which nothing is known.
const UNKNOWN: u8 = 63;

/// What was learned.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    classes: Box<[u8; WINDOW]>,
    entered: [Bit; CLASSES],
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            classes: Box::new([UNKNOWN; WINDOW]),
            entered: [Bit::default(); CLASSES],
        }
    }
}

impl Habits {
    /// What the place is.
    #[inline]
    pub(super) fn class(&self, place: u64) -> u8 {
        self.classes[place as usize % WINDOW]
    }

    #[inline]
    pub(super) fn is_entered(&self, place: u64) -> bool {
        self.entered[usize::from(self.class(place))].probability() >= ONE / 2
    }

    pub(super) fn learn(&mut self, place: u64, is_entered: bool) {
        self.entered[usize::from(self.class(place))].learn(is_entered, 255);
    }

    /// Notes what the places of a token are.
    pub(super) fn note(&mut self, place: u64, length: u64, is_copy: bool) {
        for offset in 0..length {
            let left = length - offset;
            let class = match (is_copy, left) {
                (false, _) => 0,
                (true, 1) => 1,
                (true, 2) => 2,
                (true, 3) => 3,
                _ => 4 + offset.min(31) + if offset > 31 { offset % 3 } else { 0 },
            };
            self.classes[(place + offset) as usize % WINDOW] = class as u8;
        }
    }
}

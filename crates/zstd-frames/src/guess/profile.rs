//! Which encoder is guessed.

use super::Guesser;
use super::klauspost_best::KlauspostBest;
use super::klauspost_better::KlauspostBetter;
use super::klauspost_double::KlauspostDouble;
use super::klauspost_fast::KlauspostFast;
use super::libzstd::Input;
use super::libzstd_double::Double;
use super::libzstd_fast::Fast;
use super::libzstd_finders::Rows;
use super::libzstd_lazy::Lazy;
use crate::entropy::{Habits, KLAUSPOST, LIBZSTD};
use crate::frame::Frame;

/// An encoder, at one of its levels. It is kept as two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Which family of encoders.
    pub(crate) family: u8,
    /// Its level.
    pub(crate) level: i8,
}

/// libzstd, by its input and by whether it is before 1.5.5.
const LIBZSTD_FAMILIES: [(Input, bool); 6] = [
    (Input::Whole, false),
    (Input::Pieces, false),
    (Input::Jobs, false),
    (Input::Whole, true),
    (Input::Pieces, true),
    (Input::Jobs, true),
];
/// The first of them.
const LIBZSTD_WHOLE: u8 = 0;
/// klauspost/compress.
const KLAUSPOST_ANY: u8 = 6;

impl Profile {
    /// For a stream without blocks to try profiles on.
    pub(crate) const UNKNOWN: Profile = Profile {
        family: LIBZSTD_WHOLE,
        level: 1,
    };

    /// Those whose frames have such a head, the quicker ones first.
    pub(crate) fn likely(frame: &Frame) -> Vec<Profile> {
        let (libzstd, klauspost): (&[i8], &[i8]) = match (frame.size, frame.window) {
            (None, 0x08_0000) => (&[1, -1, -2, -3, -4, -5, -6, -7], &[]),
            (None, 0x10_0000) => (&[2], &[]),
            (None, 0x20_0000) => (&[3, 4, 5, 6, 7, 8], &[]),
            (None, 0x40_0000) => (&[9, 10, 11, 12], &[1]),
            (None, 0x80_0000) => (&[12], &[2, 3, 4]),
            (None, _) => (&[12], &[2]),
            (Some(_), _) => (
                &[3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, -1, -2, -3, -4, -5, -6, -7],
                &[2, 1, 3, 4],
            ),
        };
        let klauspost = klauspost.iter().map(|&level| Profile {
            family: KLAUSPOST_ANY,
            level,
        });
        klauspost
            .chain(libzstd.iter().map(|&level| Profile {
                family: LIBZSTD_WHOLE,
                level,
            }))
            .collect()
    }

    /// The same level of the same encoder, otherwise used or of another version.
    pub(crate) fn variants(self) -> Vec<Profile> {
        let families = if self.family == KLAUSPOST_ANY {
            vec![KLAUSPOST_ANY]
        } else {
            (0..6).collect()
        };
        families
            .into_iter()
            .map(|family| Profile { family, ..self })
            .collect()
    }

    /// Its guesser, or `None` if there is no such profile.
    pub(crate) fn guesser(self) -> Option<Box<dyn Guesser>> {
        if self.family == KLAUSPOST_ANY {
            return match self.level {
                1 => Some(Box::new(KlauspostFast::new())),
                2 => Some(Box::new(KlauspostDouble::new())),
                3 => Some(Box::new(KlauspostBetter::new())),
                4 => Some(Box::new(KlauspostBest::new())),
                _ => None,
            };
        }
        let &(input, is_old) = LIBZSTD_FAMILIES.get(usize::from(self.family))?;
        match self.level {
            ..=2 => Some(Box::new(Fast::new(self.level, input))),
            3 | 4 => Some(Box::new(Double::new(self.level, input, is_old))),
            5..=12 => Some(Box::new(Lazy::new(self.level, input, is_old, Rows::new(is_old)))),
            _ => None,
        }
    }

    /// How it makes tables and codes.
    pub(crate) fn habits(self) -> Habits {
        if self.family == KLAUSPOST_ANY {
            KLAUSPOST
        } else {
            LIBZSTD
        }
    }
}

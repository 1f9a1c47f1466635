//! Versions of the encoder between which its output changed.

/// A run of versions that write the same bytes. Each is named after the first version that was tried; the change lies after the one tried before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// 1.11.3. New codes are expected to cost more, and the size of a code for literals alone is estimated in another way.
    V1_11_3,
    /// 1.11.13. Level 5 does not look for a longer copy by the end of one, and the window holds ten batches.
    V1_11_13,
    /// 1.12.3 to 1.13.6. Codes that the next batch may go on with have words for all symbols.
    V1_12_3,
    /// 1.14.4. Level 5 looks for a longer copy by the end of one only from its very beginning. Copies longer than 258 bytes are cut into ones of 255.
    V1_14_4,
    /// 1.15.1 to 1.15.9. Long copies are cut into the longest ones that there are.
    V1_15_1,
    /// 1.15.11 to 1.15.12. A longer copy may begin two bytes later. A block that leaves its codes to the next batch tells the lengths of all symbols.
    V1_15_11,
    /// 1.15.15 to 1.17.11. Levels 7 to 9 are other ones; all else is as before.
    V1_15_15,
    /// 1.18.0. Level 4 compares copies by a wrong length; all else is as before.
    V1_18_0,
    /// 1.18.1 (retracted) to 1.19.2, and Go 1.27.0. A block tells the lengths of the symbols that occur.
    V1_18_1,
    /// From 1.20.0 on, and Go 1.27.4. At levels 7 to 9 the first block no longer counts the dictionary as its own bytes; all else is as before.
    V1_20_0,
}

impl Generation {
    /// Whether this crate knows what the generation does at a level.
    pub fn has(self, level: i8) -> bool {
        match level {
            0 | 5 => true,
            -2 => self >= Generation::V1_14_4,
            1..=4 | 6 => self >= Generation::V1_15_11,
            7..=9 => self >= Generation::V1_15_15,
            _ => false,
        }
    }
}

//! Whether a program has the whole screen of a terminal, as an editor does: it has switched to the alternate screen
//! (`?1049`, `?1047` or `?47` of xterm's control sequences, which `smcup` and `rmcup` of terminfo(5) stand for). A line that somebody
//! else writes there destroys the program's picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The screen that a container's terminal is shown on. Copies are of the same screen.
#[derive(Clone, Debug, Default)]
pub struct Screen(Arc<AtomicBool>);

impl Screen {
    /// Whether a program of the container has it as a whole.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Finds in a program's output when the program takes the screen, and when it gives it back.
pub(crate) struct ScreenWatch {
    screen: Screen,
    state: State,
}

/// How far a control sequence has come.
#[derive(Clone, Copy)]
enum State {
    /// Nothing of it.
    Text,
    /// `ESC`.
    Escape,
    /// `ESC [`.
    Bracket,
    /// `ESC [ ?`, and parameters: the last one, and whether one before it is of the alternate screen.
    Parameters { number: u16, is_alternate: bool },
}

const ESCAPE: u8 = 0x1b;

impl ScreenWatch {
    pub(crate) fn new(screen: &Screen) -> Self {
        Self {
            screen: screen.clone(),
            state: State::Text,
        }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.state = self.next(byte);
        }
    }

    fn next(&self, byte: u8) -> State {
        match (self.state, byte) {
            (_, ESCAPE) => State::Escape,
            (State::Escape, b'[') => State::Bracket,
            // `reset(1)`.
            (State::Escape, b'c') => {
                self.screen.0.store(false, Ordering::Relaxed);
                State::Text
            }
            (State::Bracket, b'?') => State::Parameters {
                number: 0,
                is_alternate: false,
            },
            (State::Parameters { number, is_alternate }, b'0'..=b'9') => State::Parameters {
                number: number.saturating_mul(10).saturating_add(u16::from(byte - b'0')),
                is_alternate,
            },
            (State::Parameters { number, is_alternate }, b';') => State::Parameters {
                number: 0,
                is_alternate: is_alternate || is_of_alternate(number),
            },
            (State::Parameters { number, is_alternate }, b'h' | b'l') => {
                if is_alternate || is_of_alternate(number) {
                    self.screen.0.store(byte == b'h', Ordering::Relaxed);
                }
                State::Text
            }
            _ => State::Text,
        }
    }
}

fn is_of_alternate(number: u16) -> bool {
    matches!(number, 47 | 1047 | 1049)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_is_taken_until_it_is_given_back() {
        let screen = Screen::default();
        let mut watch = ScreenWatch::new(&screen);
        for (bytes, is_taken) in [
            (&b"text \x1b[31m red ?1049h"[..], false),
            (b"\x1b[?25l\x1b[?2004h", false),
            // In pieces, and one of several.
            (b"\x1b[?10", false),
            (b"49h\x1b[2J", true),
            (b"\x1b[?25h\x1b[?99999999991049l", true),
            (b"\x1b[?1049l", false),
            (b"\x1b[?25;1047;1h", true),
            (b"\x1b\x1b[?47l", false),
            (b"\x1b[?1049h", true),
            // As `reset` writes.
            (b"c \x1bc", false),
        ] {
            watch.take(bytes);
            assert_eq!(
                screen.is_taken(),
                is_taken,
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}

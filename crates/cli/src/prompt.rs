//! Questions on the terminal.

use std::io;

use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::print;

/// The bytes that a terminal sends for keys when it does not act on them itself.
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const DELETE_LINE: u8 = 21;
const BACKSPACES: [u8; 2] = [8, 127];
/// Longest answer.
const MAX_ANSWER: usize = 64 << 10;

/// Asks, and shows the typed text.
///
/// # Errors
/// When the terminal is closed.
pub(crate) fn line(question: &str) -> io::Result<String> {
    print::err(format_args!("{question}"));
    let mut text = String::new();
    if io::stdin().read_line(&mut text)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.trim().to_owned())
}

/// Asks, and shows nothing of the typed text. The terminal acts on no key meanwhile, so that it is never left without echo: Ctrl-C
/// ends the question with an error instead of the process.
///
/// # Errors
/// When standard input is no terminal, and when it is interrupted.
pub(crate) fn secret(question: &str) -> io::Result<String> {
    let silent = Silent::begin()?;
    print::err(format_args!("{question}"));
    let answer = read_secret(|| {
        let mut byte = [0];
        Ok((rustix::io::read(stdin(), &mut byte)? > 0).then_some(byte[0]))
    });
    drop(silent);
    // The key that ended it was not shown.
    errln!("");
    answer
}

/// The bytes up to the end of a line, with the corrections by keys applied.
fn read_secret(mut next: impl FnMut() -> io::Result<Option<u8>>) -> io::Result<String> {
    let mut answer = Vec::new();
    while let Some(byte) = next()? {
        match byte {
            b'\n' | b'\r' => break,
            INTERRUPT => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            END if answer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            END => break,
            DELETE_LINE => answer.clear(),
            byte if BACKSPACES.contains(&byte) => {
                // A character may have several bytes.
                while answer.pop().is_some_and(|last| last & 0xc0 == 0x80) {}
            }
            byte if answer.len() < MAX_ANSWER => answer.push(byte),
            _ => {}
        }
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

/// A terminal that shows nothing of the typed text, until this value is dropped.
struct Silent(Termios);

impl Silent {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let typed = |bytes: &[u8]| {
            let mut bytes = bytes.iter().copied();
            read_secret(|| Ok(bytes.next()))
        };
        assert_eq!(typed(b"hunter2\rmore").unwrap(), "hunter2");
        assert_eq!(typed("aö\u{7f}\u{7f}\u{7f}b\n".as_bytes()).unwrap(), "b");
        assert_eq!(typed(b"wrong\x15right\x04").unwrap(), "right");
        assert_eq!(typed(b"a\x03b\n").unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(typed(b"\x04").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(typed(b"\xff\n").is_err());
    }
}

//! From a filter's text to what must fit.

use regex::RegexBuilder;

use super::selector::{Operator, Selector};
use crate::error::SnapshotError;

/// Longest filter, in bytes. containerd's own hold two names of at most 4 KiB.
const LONGEST: usize = 64 << 10;
/// How large an expression may become when it is compiled, in bytes.
const EXPRESSION: usize = 1 << 20;

pub(super) fn filter(text: &str) -> Result<Vec<Selector>, SnapshotError> {
    if text.len() > LONGEST {
        return Err(SnapshotError::invalid(format!(
            "a filter has {} bytes, and {LONGEST} are the most",
            text.len()
        )));
    }
    let mut selectors = Vec::new();
    let mut parser = Parser { text, rest: text };
    // Nothing asks for nothing.
    if text.is_empty() {
        return Ok(selectors);
    }
    loop {
        selectors.push(parser.selector()?);
        match parser.next() {
            None => return Ok(selectors),
            Some(',') => parser.skip(1),
            Some(_) => return Err(parser.wrong("expected a comma or the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Parser<'_> {
    fn selector(&mut self) -> Result<Selector, SnapshotError> {
        let mut path = vec![self.field()?];
        while self.next() == Some('.') {
            self.skip(1);
            path.push(self.field()?);
        }
        let operator = match self.next() {
            None | Some(',') => Operator::Present,
            Some(_) => self.operator()?,
        };
        Ok(Selector { path, operator })
    }

    fn field(&mut self) -> Result<String, SnapshotError> {
        if self.next() == Some('"') {
            return self.quoted('"');
        }
        let field = self.take(|character| character.is_ascii_alphanumeric() || character == '_');
        match field.is_empty() {
            true => Err(self.wrong("expected a field")),
            false => Ok(field),
        }
    }

    fn operator(&mut self) -> Result<Operator, SnapshotError> {
        let operator = self.take(|character| matches!(character, '=' | '!' | '~'));
        match operator.as_str() {
            "==" => Ok(Operator::Is(self.value(&['"'])?)),
            "!=" => Ok(Operator::IsNot(self.value(&['"'])?)),
            "~=" => {
                let expression = self.value(&['"', '/', '|'])?;
                let compiled = RegexBuilder::new(&expression).size_limit(EXPRESSION).build();
                Ok(Operator::Matches(compiled.ok()))
            }
            _ => Err(self.wrong("expected ==, != or ~=")),
        }
    }

    fn value(&mut self, quotes: &[char]) -> Result<String, SnapshotError> {
        match self.next() {
            Some(quote @ ('"' | '/' | '|')) if quotes.contains(&quote) => self.quoted(quote),
            Some('/' | '|') => Err(self.wrong("expected double quotes")),
            _ => {
                let value = self.take(|character| {
                    character != ',' && !character.is_whitespace() && !character.is_control()
                });
                match value.is_empty() {
                    true => Err(self.wrong("expected a value")),
                    false => Ok(value),
                }
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, SnapshotError> {
        self.skip(1);
        // Escapes may name bytes one by one.
        let mut bytes = Vec::new();
        loop {
            let mut rest = self.rest.chars();
            let character = rest.next();
            match character {
                Some(end) if end == quote => {
                    self.rest = rest.as_str();
                    let text = String::from_utf8(bytes);
                    return text.map_err(|_| self.wrong("what was quoted is not UTF-8"));
                }
                Some('\\') => {
                    self.rest = rest.as_str();
                    self.escape(quote, &mut bytes)?;
                }
                None | Some('\n') => return Err(self.wrong("the quotes are not closed")),
                Some(other) => {
                    self.rest = rest.as_str();
                    bytes.extend(other.encode_utf8(&mut [0; 4]).bytes());
                }
            }
        }
    }

    fn escape(&mut self, quote: char, bytes: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let mut rest = self.rest.chars();
        let Some(character) = rest.next() else {
            return Err(self.wrong("the quotes are not closed"));
        };
        let before = self.rest;
        self.rest = rest.as_str();
        let simple = match character {
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            '\\' => b'\\',
            _ if character == quote => u8::try_from(quote).unwrap_or_default(),
            'x' => return self.byte(16, 2, bytes),
            'u' => return self.character(4, bytes),
            'U' => return self.character(8, bytes),
            '0'..='7' => {
                self.rest = before;
                return self.byte(8, 3, bytes);
            }
            _ => return Err(self.wrong("no such escape")),
        };
        bytes.push(simple);
        Ok(())
    }

    fn byte(&mut self, base: u32, digits: usize, bytes: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let number = self.digits(base, digits)?;
        bytes.push(u8::try_from(number).map_err(|_| self.wrong("no such byte"))?);
        Ok(())
    }

    fn character(&mut self, digits: usize, bytes: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let number = self.digits(16, digits)?;
        let character = char::from_u32(number).ok_or_else(|| self.wrong("no such character"))?;
        bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
        Ok(())
    }

    fn digits(&mut self, base: u32, count: usize) -> Result<u32, SnapshotError> {
        let digits = self.rest.get(..count).unwrap_or_default();
        let all_are = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base));
        match u32::from_str_radix(digits, base) {
            Ok(number) if all_are => {
                self.skip(count);
                Ok(number)
            }
            _ => Err(self.wrong("too few digits")),
        }
    }

    /// The next character that is no space.
    fn next(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> String {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|character| !fits(character));
        let taken = self
            .rest
            .get(..end.unwrap_or(self.rest.len()))
            .unwrap_or_default();
        self.skip(taken.len());
        taken.to_owned()
    }

    fn wrong(&self, what: &str) -> SnapshotError {
        let at = self.text.len() - self.rest.len();
        SnapshotError::invalid(format!("the filter {:?}, at byte {at}: {what}", self.text))
    }
}

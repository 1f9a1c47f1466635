//! `--env-file`: variables from a file, by docker's rules.
//!
//! A line is `NAME=value`. The value is the rest of the line as it is, with its quotes. A name alone takes
//! the caller's value, if there is one. White space before a line is ignored, and so are empty lines and
//! those that begin with `#`.

use std::fmt;

/// Largest file that is read. The kernel usually takes 2 MiB of arguments and environment together
/// (`ARG_MAX`).
const FILE_LIMIT: usize = 4 << 20;

/// A defect of a file of variables.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvFileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The defect of that line, in words.
    pub reason: String,
}

impl std::error::Error for EnvFileError {}

impl fmt::Display for EnvFileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.reason)
    }
}

/// Reads the variables of a file. `own` returns the caller's value of a variable.
///
/// # Errors
/// The first line that sets no variable.
pub fn read(
    text: &[u8],
    own: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, EnvFileError> {
    if text.len() > FILE_LIMIT {
        let reason = format!("the file is larger than {FILE_LIMIT} bytes");
        return Err(EnvFileError { line: 1, reason });
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut variables = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |reason: String| EnvFileError {
            line: index + 1,
            reason,
        };
        let line = std::str::from_utf8(line).map_err(|_| wrong("it is not UTF-8".into()))?;
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line, own(line)),
        };
        if name.is_empty() {
            return Err(wrong(format!("no name before '=' in {line:?}")));
        }
        if name.contains(char::is_whitespace) {
            return Err(wrong(format!("the name {name:?} contains white space")));
        }
        variables.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(variables)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_of_variables_are_read_as_docker_reads_them() {
        let own = |name: &str| (name == "OWN").then(|| "mine".to_owned());
        let text = "\u{feff}A=1\n# no\n\n  B = x \nC=\"quoted\" # kept\nOWN\nNOT_SET\nD=a=b\r\nE=\n";
        let error = read(text.as_bytes(), own).unwrap_err();
        assert_eq!(error.line, 4, "{error}");
        let text = text.replace("B = x ", "B= x ");
        let variables = read(text.as_bytes(), own).unwrap();
        let lines: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            lines,
            ["A=1", "B= x ", "C=\"quoted\" # kept", "OWN=mine", "D=a=b", "E="]
        );
        for text in [&b"=x"[..], b"A B=1", b"A\xff=1", b"A B"] {
            assert!(read(text, own).is_err(), "{text:?}");
        }
        assert!(read(&vec![b'#'; 5 << 20], own).is_err());
    }
}

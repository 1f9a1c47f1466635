//! What errors of objects say.

use std::io;

/// Whether an error says that an object is not there, and nothing of its place.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
    )
}

/// The error that says more: that of a place that did not answer, where others have not the object.
pub fn worse(first: Option<io::Error>, second: io::Error) -> io::Error {
    match first {
        Some(first) if !is_absence(&first) => first,
        _ => second,
    }
}

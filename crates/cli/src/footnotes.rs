//! Reasons that are too long for a column: a number stands in the table, and the reason below it, once however many rows have it.

/// The reasons of one table.
#[derive(Default)]
pub(crate) struct Footnotes(Vec<String>);

impl Footnotes {
    /// The mark behind a word of the table, a space before it; nothing without a reason.
    pub(crate) fn mark(&mut self, reason: Option<&str>) -> String {
        let Some(reason) = reason else {
            return String::new();
        };
        let known = self.0.iter().position(|known| known == reason);
        let place = known.unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        });
        format!(" [{}]", place + 1)
    }

    /// The reasons for below the table; further lines of a reason are indented.
    pub(crate) fn lines(&self) -> Vec<String> {
        let notes = (1..).zip(&self.0);
        let notes = notes.map(|(number, reason): (usize, _)| {
            let indented = reason.lines().collect::<Vec<_>>().join("\n    ");
            format!("[{number}] {indented}")
        });
        notes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_one_number_and_stands_below_once() {
        let mut notes = Footnotes::default();
        assert_eq!(notes.mark(None), "");
        assert_eq!(notes.mark(Some("one\n  more")), " [1]");
        assert_eq!(notes.mark(Some("two")), " [2]");
        assert_eq!(notes.mark(Some("one\n  more")), " [1]");
        assert_eq!(notes.lines(), ["[1] one\n      more", "[2] two"]);
    }
}

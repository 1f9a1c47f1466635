//! What may be shown on a terminal.

/// Text of others without the control characters by which it could do something to a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}1m ä"), "a [2Jb c 1m ä");
    }
}

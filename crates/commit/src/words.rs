//! The words of an instruction, as a Dockerfile has them: blanks separate, quotes and backslashes keep them from that.

/// Cuts a text into words.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', None | Some('"')) => {
                let next = characters
                    .next()
                    .ok_or("there is nothing after the last backslash")?;
                let word = word.get_or_insert_default();
                // Between quotes a backslash keeps quotes, backslashes and dollar signs only.
                if quote.is_some() && !matches!(next, '"' | '\\' | '$') {
                    word.push('\\');
                }
                word.push(next);
            }
            ('$', None | Some('"')) => {
                return Err(
                    "variables are not replaced; write the value, or \\$ for a dollar sign".to_owned(),
                );
            }
            (end, Some(begin)) if end == begin => quote = None,
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    match quote {
        Some(quote) => Err(format!("the quote {quote} has no end")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_words_together() {
        for (text, wanted) in [
            ("", &[][..]),
            (" a  b ", &["a", "b"]),
            (r#"k="a b" 'c d'"#, &["k=a b", "c d"]),
            (r"a\ b \$HOME", &["a b", "$HOME"]),
            (r#""\"\n""#, &[r#""\n"#]),
            ("'$HOME'", &["$HOME"]),
            ("\"\"", &[""]),
        ] {
            assert_eq!(words(text).unwrap(), wanted, "{text}");
        }
        for text in ["\"a", "'", "a\\", "$HOME", "\"$HOME\""] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}

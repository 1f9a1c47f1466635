//! One line of comma-separated values (RFC 4180), as docker's `--mount` is written.

/// The fields of a line. A field in quotes may hold commas, line ends and, twice each, quotes.
pub(super) fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                if field.contains('"') {
                    return Err(
                        "a quote stands inside a field; put the whole field in quotes, and write \"\" for one in it",
                    );
                }
                (field.to_owned(), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(fields),
            None => return Err("something follows the quote that ends a field"),
        }
    }
}

/// The field, and what follows its last quote.
fn unquote(text: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None => return Ok((field, after)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_hold_commas_and_quotes() {
        for (line, expected) in [
            ("a,b=c", &["a", "b=c"][..]),
            ("", &[""]),
            ("a,,b,", &["a", "", "b", ""]),
            (r#""a,b",c"#, &["a,b", "c"]),
            (r#"x,"say ""hi""""#, &["x", r#"say "hi""#]),
            (r#""""#, &[""]),
        ] {
            assert_eq!(fields(line).unwrap(), expected, "{line}");
        }
        for line in [r#""a"#, r#"a"b"#, r#""a"b"#, r#"a,""" "#] {
            assert!(fields(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(wanted in proptest::collection::vec(".*", 1..5)) {
            let quoted: Vec<String> = wanted.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
            prop_assert_eq!(fields(&quoted.join(",")).unwrap(), wanted);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = fields(&text);
        }
    }
}

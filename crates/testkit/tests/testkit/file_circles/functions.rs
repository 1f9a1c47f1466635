//! Functions fit a screen, or their comments say why they do not.

use std::fs;

use crate::project;

/// Lines of a function, from its name to its end.
const MOST_LINES: usize = 60;
/// How the sentence begins that says why a function is longer.
const REASON: &str = "One function, since ";

/// A function that is too long, without a reason.
#[derive(Debug, PartialEq, Eq)]
struct Long {
    /// Where it begins, from 1.
    line: usize,
    lines: usize,
}

/// The functions of a formatted source that are too long and give no reason, tests aside.
fn long_functions(text: &str) -> Vec<Long> {
    let product = text.split("\n#[cfg(test)]\nmod tests {\n").next().unwrap();
    let lines: Vec<&str> = product.lines().collect();
    let mut found = Vec::new();
    let begins = (0..lines.len()).filter(|number| is_function(lines[*number]));
    for number in begins {
        let Some(length) = length(&lines[number..]) else {
            continue;
        };
        if length > MOST_LINES && !has_reason(&lines[..number]) {
            found.push(Long {
                line: number + 1,
                lines: length,
            });
        }
    }
    found
}

/// Whether a function begins in a line.
fn is_function(line: &str) -> bool {
    let before: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let Some(at) = before.iter().position(|word| *word == "fn") else {
        return false;
    };
    let is_qualifier =
        |word: &&str| word.starts_with("pub") || ["async", "const", "unsafe", "extern"].contains(word);
    before[..at].iter().all(is_qualifier)
}

/// The lines of the function that begins in the first line; none of one without a body. A formatted function ends with the first
/// brace that closes as far to the left as the function begins.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    if first.ends_with(['}', ';']) {
        return first.ends_with('}').then_some(1);
    }
    let margin = &first[..first.len() - first.trim_start().len()];
    let is_end = |line: &&str| {
        let text = line.strip_prefix(margin).unwrap_or_default();
        text == "}" || (text.starts_with(')') && text.ends_with(';'))
    };
    let end = lines.iter().position(is_end)?;
    lines[end].ends_with('}').then_some(end + 1)
}

/// Whether the comments and attributes above a function give a reason.
fn has_reason(above: &[&str]) -> bool {
    let above = above.iter().rev().map(|line| line.trim_start());
    let comments: Vec<&str> = above
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .map(|line| line.trim_start_matches('/').trim_start())
        .collect();
    let text: Vec<&str> = comments.into_iter().rev().collect();
    text.join(" ").contains(REASON)
}

#[test]
fn functions_fit_a_screen_or_say_why_not() {
    let crates = project::crates();
    let mut wrong = Vec::new();
    for path in project::sources() {
        let name = path.strip_prefix(&crates).unwrap().display();
        for Long { line, lines } in long_functions(&fs::read_to_string(&path).unwrap()) {
            wrong.push(format!("crates/{name}:{line} has {lines} lines"));
        }
    }
    assert!(
        wrong.is_empty(),
        "functions have {MOST_LINES} lines at most; take these apart, or write above them \"{REASON}...\":\n{}",
        wrong.join("\n")
    );
}

/// A method of that many lines, with a comment above.
fn method(lines: usize, comment: &str) -> String {
    let body = "        call();\n".repeat(lines - 4);
    format!(
        "impl One {{\n    {comment}\n    #[inline]\n    pub(crate) async fn one(\n    ) {{\n{body}        if a {{ b() }}\n    }}\n}}\n"
    )
}

#[test]
fn long_functions_are_found() {
    assert_eq!(long_functions(&method(60, "/// It does all.")), []);
    let long = long_functions(&method(61, "/// It does all."));
    assert_eq!(long, [Long { line: 4, lines: 61 }]);
    let excused = method(61, "/// It does all. One function, since\n    /// it is a list.");
    assert_eq!(long_functions(&excused), []);
    let in_tests = format!(
        "fn short() {{}}\n\n#[cfg(test)]\nmod tests {{\n{}}}\n",
        method(61, "")
    );
    assert_eq!(long_functions(&in_tests), []);
}

#[test]
fn what_has_no_body_is_no_long_function() {
    let declared = format!(
        "trait One {{\n    fn one(&self);\n{}}}\n",
        "    const A: u8;\n".repeat(70)
    );
    assert_eq!(long_functions(&declared), []);
    assert!(!is_function("    // Calls a fn of its own."));
    assert!(!is_function("    let call: fn() = one;"));
}

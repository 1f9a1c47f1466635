//! Documents, and comments as far as they are documents: what they refer to is there (files by links, sources by their path in
//! backquotes), the map and the README name all crates and pages, and sentences name their actor.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project::top;

/// Documents in these folders, not in those below them.
const FOLDERS: &[&str] = &[
    "",
    "docs",
    "docs/decisions",
    "docs/formats",
    "bench/results",
    "packaging",
];

fn documents() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| top().join(folder));
    let files = folders.filter(|folder| folder.is_dir()).flat_map(|folder| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// The targets of links to files of the tree, without the heading that they may name.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter_map(|target| target.split('#').next())
        .collect()
}

/// Paths of sources in backquotes.
fn sources(text: &str) -> Vec<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| quoted.starts_with("crates/") && quoted.ends_with(".rs"))
        .filter(|quoted| !quoted.contains(|character: char| "*{ ".contains(character)))
        .collect()
}

#[test]
fn what_documents_refer_to_is_there() {
    let documents = documents();
    assert!(documents.len() > 30, "{documents:?}");
    let mut missing = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        let linked = links(&text).into_iter().map(|link| (link, folder.join(link)));
        let named = sources(&text)
            .into_iter()
            .map(|source| (source, top().join(source)));
        for (name, path) in linked.chain(named) {
            if !path.exists() {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Names of tests in backquotes: of functions, and of end-to-end cases by their topic, `registry/restart`.
fn named_tests(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    quoted
        .filter(|quoted| quoted.matches('_').count() >= 1 || quoted.starts_with("registry/"))
        .filter(|quoted| {
            quoted
                .chars()
                .all(|character| plain(character) || "_/-".contains(character))
        })
        .collect()
}

/// Appends what all sources in a folder say.
fn read_sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn tests_that_answer_complaints_are_there() {
    let text = fs::read_to_string(top().join("docs/registry.md")).unwrap();
    let (_, rest) = text.split_once("## Twenty complaints").unwrap();
    let table: Vec<&str> = rest
        .lines()
        .filter(|line| line.starts_with("| "))
        .take(22)
        .collect();
    assert!(
        table[1].starts_with("| ---") && table[21].starts_with("| 20. "),
        "{table:#?}"
    );
    let mut sources = String::new();
    for folder in ["crates", "tests/src"] {
        read_sources(&top().join(folder), &mut sources);
    }
    for row in &table[2..] {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names = named_tests(shown);
        assert!(!names.is_empty() || shown == "no test yet", "{row}");
        for name in names {
            let definition = match name.split_once('/') {
                Some((_, case)) => format!("case(\"{case}\""),
                None => format!("fn {name}()"),
            };
            assert!(sources.contains(&definition), "{name} of {row} is no test");
        }
    }
}

#[test]
fn links_and_sources_are_found() {
    let text = "[a](x/y.md#part) [b](https://example.com) [c](#here) `crates/a/src/b.rs` `crates/{a,b}/c.rs` `run.rs`";
    assert_eq!(links(text), ["x/y.md"]);
    assert_eq!(sources(text), ["crates/a/src/b.rs"]);
    assert_eq!(
        named_tests("`a_test_of_it`, `tag_ttl` `registry/restart` `Range` `A_B`"),
        ["a_test_of_it", "tag_ttl", "registry/restart"]
    );
}

/// Where a sentence may begin in a line: behind the mark of a comment, of an item, of a cell.
const MARKS: &[&str] = &["///", "//!", "//", "*", "-", ">"];

/// The text of a line of a document or a comment, and whether a mark shows that a sentence begins there.
fn without_marks(line: &str) -> (&str, bool) {
    let mut text = line.trim();
    let mut is_item = false;
    while let Some(rest) = MARKS.iter().find_map(|mark| text.strip_prefix(mark)) {
        is_item |= !text.starts_with('/');
        text = rest.trim_start();
    }
    (text, is_item)
}

/// The sentences of a paragraph that begin with "who", "whoever" and the like, and are no questions: they do not say who acts.
fn without_actor(paragraph: &str) -> Vec<String> {
    let words = ["Who ", "Whoever ", "Whom ", "Whose "];
    let begins = |at: &usize| {
        let before = paragraph[..*at].trim_end_matches(|character: char| " *_(\"\n".contains(character));
        before.is_empty() || before.ends_with(['.', '!', '?', ':', '|'])
    };
    let found = words
        .iter()
        .flat_map(|word| paragraph.match_indices(word).map(|(at, _)| at));
    let sentences = found.filter(begins).filter_map(|at| {
        let rest = &paragraph[at..];
        let end = rest.find(['.', '?', '!']).unwrap_or(rest.len());
        (!rest[end..].starts_with('?')).then(|| rest[..end].chars().take(80).collect())
    });
    sentences.collect()
}

/// Paragraphs with the numbers of their first lines. `text_of` gives a line's text and whether it begins a sentence; none ends the
/// paragraph.
fn paragraphs<'t>(
    text: &'t str,
    text_of: impl Fn(&'t str) -> Option<(&'t str, bool)>,
) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some((text, begins)) = text_of(line) else {
            goes_on = false;
            continue;
        };
        match all.last_mut() {
            Some((_, paragraph)) if goes_on && !begins => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            _ => all.push((number, text.to_owned())),
        }
        goes_on = true;
    }
    all
}

/// The paragraphs of a document, without headings and examples.
fn prose(text: &str) -> Vec<(usize, String)> {
    let kept: String = text
        .split("```")
        .enumerate()
        .map(|(number, part)| match number % 2 {
            0 => part.to_owned(),
            _ => "\n".repeat(part.matches('\n').count()),
        })
        .collect();
    paragraphs(&kept, |line| {
        let is_prose = !line.trim().is_empty() && !line.starts_with('#');
        is_prose.then(|| without_marks(line))
    })
}

/// The paragraphs of a source's comments.
fn comments(text: &str) -> Vec<(usize, String)> {
    paragraphs(text, |line| {
        let (text, begins) = without_marks(line);
        let is_comment = line.trim().starts_with("//") && !text.is_empty();
        is_comment.then_some((text, begins))
    })
}

/// Appends all sources in a folder.
fn sources_in(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources_in(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn sentences_name_their_actor() {
    let mut files = documents();
    for folder in ["crates", "tests/src", "fuzz/fuzz_targets", "fuzz/examples"] {
        sources_in(&top().join(folder), &mut files);
    }
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let all = match file.extension().is_some_and(|extension| extension == "rs") {
            true => comments(&text),
            false => prose(&text),
        };
        for (number, paragraph) in all {
            let wrong = without_actor(&paragraph);
            found.extend(
                wrong
                    .iter()
                    .map(|it| format!("{}:{number}: {it}", file.display())),
            );
        }
    }
    assert!(
        found.is_empty(),
        "name the actor (\"a user who …\", \"the process that …\") where a sentence begins with \"who\":\n{}",
        found.join("\n")
    );
}

#[test]
fn sentences_without_an_actor_are_found() {
    let text = "//! Who asks.\n//!\n//! It waits. Whoever\n//! comes goes.\n\nlet who = 1; // Whom to ask\n/// A user who asks. Who is it?\n";
    let found: Vec<String> = comments(text)
        .iter()
        .flat_map(|(_, text)| without_actor(text))
        .collect();
    assert_eq!(found, ["Who asks", "Whoever comes goes"]);
    let text = "# Who asks\n\nOf those\nWho Knows. Yes\n* **Whom** it is\n* Whose turn\n\n```\nWho runs\n```\n| a | Who has it |\n";
    let found: Vec<String> = prose(text)
        .iter()
        .flat_map(|(_, text)| without_actor(text))
        .collect();
    assert_eq!(found, ["Whose turn", "Who has it |"]);
}

/// The names of all crates' folders.
fn crates() -> Vec<String> {
    let entries = fs::read_dir(top().join("crates")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The crates of ours that a crate uses, but for its tests.
fn uses(name: &str) -> Vec<String> {
    let text = fs::read_to_string(top().join("crates").join(name).join("Cargo.toml")).unwrap();
    let (_, rest) = text.split_once("[dependencies]\n").unwrap();
    let own = rest.split("\n[").next().unwrap();
    let lines = own.lines().filter_map(|line| line.strip_prefix("xebec-"));
    lines
        .map(|line| line.split(['.', ' ']).next().unwrap().to_owned())
        .collect()
}

/// The rows of the drawing of crates, from the uppermost on, with the names in each.
fn rows_of_the_drawing(map: &str) -> Vec<Vec<&str>> {
    let (_, rest) = map.split_once("\n## Crates\n").unwrap();
    let drawing = rest.split("```").nth(1).unwrap();
    let rows = drawing.lines().filter_map(|line| line.split('│').nth(1));
    rows.map(|row| row.split_whitespace().collect()).collect()
}

#[test]
fn the_map_has_each_crate_in_its_table_and_above_those_it_uses() {
    let map = fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let rows = rows_of_the_drawing(&map);
    let row_of = |name: &str| {
        let at: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].contains(&name)).collect();
        assert_eq!(
            at.len(),
            1,
            "`{name}` must be in the drawing of ARCHITECTURE.md once"
        );
        at[0]
    };
    for name in crates() {
        let begin = format!("| `{name}` | ");
        let lines = map.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(
            lines.count(),
            1,
            "`{name}` must be in the table of ARCHITECTURE.md once"
        );
        for used in uses(&name) {
            assert!(
                row_of(&used) > row_of(&name),
                "the drawing of ARCHITECTURE.md must have `{used}` on a lower line than `{name}`, which uses it"
            );
        }
    }
    let drawn: Vec<&str> = rows.concat();
    assert_eq!(drawn.len(), crates().len(), "{drawn:?}");
}

#[test]
fn each_crate_says_what_it_promises_and_may_use() {
    for name in crates() {
        let folder = top().join("crates").join(&name).join("src");
        let file = ["lib.rs", "main.rs"]
            .map(|file| folder.join(file))
            .into_iter()
            .find(|file| file.exists());
        let text = fs::read_to_string(file.unwrap()).unwrap();
        let page: Vec<&str> = text.lines().filter(|line| line.starts_with("//!")).collect();
        let page = page.join("\n").to_lowercase();
        for part in ["promise", "may use"] {
            assert!(page.contains(part), "the page of the crate {name} lacks: {part}");
        }
    }
}

#[test]
fn the_readme_leads_to_each_page() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    let linked: Vec<PathBuf> = links(&readme).iter().map(|link| top().join(link)).collect();
    for document in documents() {
        if document.parent() == Some(&top().join("docs")) {
            assert!(
                linked.contains(&document),
                "README.md does not link {}",
                document.display()
            );
        }
    }
}

//! What is shown of a command's use to who made a mistake.

use crate::program::{Program, text};

/// The commands below one, by its help.
fn commands_of(program: &Program, words: &[String]) -> Vec<Vec<String>> {
    let mut asked: Vec<&str> = words.iter().map(String::as_str).collect();
    asked.push("--help");
    let help = text(&program.output(&asked).stdout);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| line.starts_with("  "));
    // Further lines of a description are deeper.
    let names = names.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(|name| [words, &[name.to_owned()]].concat())
        .collect()
}

/// The directories are set by variables, as all tests here do it.
#[test]
fn no_usage_asks_for_what_a_variable_sets() {
    let program = Program::new();
    let mut left = commands_of(&program, &[]);
    assert!(left.len() > 20, "{left:?}");
    let mut seen = 0;
    while let Some(words) = left.pop() {
        left.extend(commands_of(&program, &words));
        let mut wrong: Vec<&str> = words.iter().map(String::as_str).collect();
        wrong.push("--no-such-option");
        let said = text(&program.output(&wrong).stderr);
        assert!(said.contains("Usage: xebec "), "{wrong:?}: {said}");
        for option in ["--root", "--run "] {
            assert!(!said.contains(option), "{wrong:?}: {said}");
        }
        seen += 1;
    }
    assert!(seen > 50, "{seen} commands");
    let help = text(&program.output(&["mount", "--help"]).stdout);
    assert!(help.contains("XEBEC_ROOT"), "{help}");
}

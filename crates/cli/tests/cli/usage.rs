//! Help about a command's use, for a user who made a mistake.

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

/// The exit code after a wrong use: 125, as of docker, where any other may be that of the program that the command runs.
fn code_of_wrong_use(words: &[&str]) -> i32 {
    match words {
        ["run"] | ["exec"] => 125,
        _ => 2,
    }
}

/// The directories are set by variables, as all tests here do it.
#[test]
fn no_usage_asks_for_what_a_variable_sets() {
    let program = Program::new();
    let mut left = commands_of(&program, &[]);
    assert!(left.len() > 20, "{left:?}");
    let (mut seen, mut lacking) = (0, 0);
    while let Some(words) = left.pop() {
        left.extend(commands_of(&program, &words));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = text(&program.output(&[&words[..], &["--help"]].concat()).stdout);
        let usage = help.lines().find(|line| line.starts_with("Usage: "));
        let code = code_of_wrong_use(&words);
        let mut mistakes = vec![[&words[..], &["--no-such-option"]].concat()];
        // Such a command does nothing without its arguments.
        if usage.unwrap().contains(" <") {
            mistakes.push(words);
            lacking += 1;
        }
        for wrong in mistakes {
            let output = program.output(&wrong);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{wrong:?}: {said}");
            assert!(said.contains("Usage: xebec "), "{wrong:?}: {said}");
            for option in ["--root", "--run "] {
                let usage = said.lines().find(|line| line.starts_with("Usage: "));
                assert!(!usage.unwrap().contains(option), "{wrong:?}: {said}");
            }
        }
        seen += 1;
    }
    assert!(
        seen > 50 && lacking > 20,
        "{seen} commands, {lacking} with arguments"
    );
    let help = text(&program.output(&["mount", "--help"]).stdout);
    assert!(help.contains("XEBEC_ROOT"), "{help}");
}

#[test]
fn nobody_is_advised_to_pass_an_option_as_a_name() {
    let program = Program::new();
    for words in [
        &["run", "--nosuch", "image"][..],
        &["rm", "--nosuch", "web"],
        &["exec", "--nosuch", "web", "sh"],
        &["pull", "-x", "image"],
    ] {
        let said = text(&program.output(words).stderr);
        assert!(said.contains("unexpected argument"), "{words:?}: {said}");
        assert!(!said.contains("as a value"), "{words:?}: {said}");
    }
    // docker has it: its exit code is that of any wrong use.
    for (words, code) in [
        (&["exec", "--privileged", "web", "sh"][..], 125),
        (&["login", "-p", "secret", "registry.example.com"], 2),
    ] {
        let output = program.output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(
            said.contains(&format!("xebec {} has no {}: ", words[0], words[1])),
            "{said}"
        );
    }
}

#[test]
fn what_ends_with_the_code_of_another_program_ends_with_125_by_itself() {
    let program = Program::new();
    for (words, code, said) in [
        // Refusals by clap, and by this program.
        (&["run"][..], 125, "IMAGE"),
        (&["run", "--nosuch", "image"], 125, "--nosuch"),
        (&["run", "--privileged", "image"], 125, "--privileged"),
        (&["run", "--memory", "much", "image"], 125, "much"),
        (&["run", "--restart", "always", "image"], 125, "--detach"),
        (
            &["--quiet", "run", "-d", "--restart", "sometimes", "image"],
            125,
            "sometimes",
        ),
        (&["exec", "web"], 125, "CMD"),
        (&["exec", "--nosuch", "web", "true"], 125, "--nosuch"),
        (&["exec", "web", "true"], 125, "\"web\""),
        (&["start", "--attach", "web"], 125, "\"web\""),
        (&["start", "-a", "web", "db"], 125, "one container"),
        // Others have a code for each kind of failure.
        (&["start", "web"], 3, "\"web\""),
        (&["start", "--nosuch", "web"], 2, "--nosuch"),
        (&["images", "run", "--nosuch"], 2, "run"),
        (&["--nosuch", "run"], 2, "--nosuch"),
    ] {
        let output = program.output(words);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert!(told.contains(said), "{words:?}: {told}");
    }
    assert_eq!(program.output(&["run", "--help"]).status.code(), Some(0));
}

#[test]
fn a_size_is_written_alike_wherever_one_is_taken() {
    let program = Program::new();
    for size in ["1m", "64MiB", "1.5g", "20GB", "2gi", "7000000"] {
        // The size is read, and the option after it is refused: no daemon is started.
        let to = format!("--to={size}");
        let output = program.output(&["cache", "gc", &to, "--none"]);
        let said = text(&output.stderr);
        assert!(said.contains("--none") && !said.contains(size), "{size}: {said}");
        for option in [
            "--memory",
            "--memory-swap",
            "--memory-reservation",
            "--shm-size",
            "--log-max-size",
        ] {
            let output = program.output(&["run", option, size, "--cpus", "none", "image"]);
            let said = text(&output.stderr);
            assert!(
                said.contains("none") && !said.contains(size),
                "{option} {size}: {said}"
            );
        }
    }
    for wrong in ["1x", "1kk", "k"] {
        let to = format!("--to={wrong}");
        for words in [
            &["cache", "gc", "--dry-run", &to][..],
            &["run", "--memory-reservation", wrong, "image"],
            &["run", "--shm-size", wrong, "image"],
        ] {
            let said = text(&program.output(words).stderr);
            assert!(
                said.contains("20GiB") && said.contains(wrong),
                "{words:?}: {said}"
            );
        }
    }
}

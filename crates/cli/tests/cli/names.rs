//! Images that this host knows, as `xebec images` lists them and shells complete them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::program::{Program, text};

/// Writes the record of an image whose only layer is not cached.
fn know(program: &Program, digit: char, names: &[&str]) {
    let digest = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest('a'), "size": 2},
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest('b'), "size": 48_800_000
        }],
    });
    let record = json!({
        "references": names,
        "manifest_digest": digest(digit),
        "media_type": "application/vnd.oci.image.manifest.v1+json",
        "manifest": manifest.to_string(),
        "config": r#"{"os":"linux"}"#,
        "layers": [{"layer": digest('b'), "index": digest('c'), "root": "proven"}],
        "last_used": 1,
    });
    let images = program.root().join("images");
    fs::create_dir_all(&images).unwrap();
    let file = images.join(format!("{}.json", digit.to_string().repeat(64)));
    fs::write(file, record.to_string()).unwrap();
}

fn known() -> Program {
    let program = Program::new();
    // With the permissions that it wants.
    program.output(&["images"]);
    know(&program, '1', &["docker.io/library/nginx:1.27"]);
    know(
        &program,
        '2',
        &["registry.lan:5000/app:1", "registry.lan:5000/app:2"],
    );
    know(&program, '3', &[]);
    program
}

#[test]
fn images_have_sizes_and_json_has_objects() {
    let program = known();
    let listed = text(&program.output(&["images"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    for (line, words) in lines.iter().zip([
        &["IMAGE", "MANIFEST", "LAYERS", "SIZE", "CACHED", "USED"][..],
        &["nginx:1.27", " 111111111111 ", "48.8 MB", " 0 %"],
        &["app:1, registry.lan:5000/app:2", " 222222222222 "],
        &["(none)", " 333333333333 "],
    ]) {
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
    let quiet = text(&program.output(&["images", "-q"]).stdout);
    let digests = ['1', '2', '3'].map(|digit| format!("sha256:{}\n", digit.to_string().repeat(64)));
    assert_eq!(quiet, digests.concat());
    let listed: Value = serde_json::from_slice(&program.output(&["images", "--json"]).stdout).unwrap();
    let first = listed.get(0).unwrap();
    assert_eq!(first.pointer("/manifest/layers/0/size"), Some(&json!(48_800_000)));
    assert_eq!(first.pointer("/config/os"), Some(&json!("linux")));
    assert_eq!(first.get("size"), Some(&json!(48_800_000)));
    assert_eq!(first.get("cached_size"), Some(&json!(0)));
}

/// A mistyped name is no reason to ask docker.io, and the first digits that `images` prints are a name everywhere.
#[test]
fn no_registry_is_asked_for_a_name_without_one() {
    let program = known();
    let mistyped = program.output(&["inspect", "wbe"]);
    assert_eq!(mistyped.status.code(), Some(3));
    let said = text(&mistyped.stderr);
    for word in [
        "\"wbe\"",
        "xebec ps -a",
        "xebec images",
        "xebec inspect docker.io/library/wbe",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let explained = program.output(&["explain", "111111111111"]);
    let said = text(&explained.stdout);
    assert!(
        explained.status.success() && said.contains(&"1".repeat(64)),
        "{said}"
    );
    // An image that begins with the same digits.
    let images = program.root().join("images");
    let twin = format!("{}{}", "1".repeat(20), "2".repeat(44));
    let record = fs::read_to_string(images.join(format!("{}.json", "1".repeat(64)))).unwrap();
    fs::write(
        images.join(format!("{twin}.json")),
        record.replace(&"1".repeat(64), &twin),
    )
    .unwrap();
    for words in [
        &["inspect", "111111111111"][..],
        &["explain", "111111111111"],
        &["record", "--rm", "111111111111"],
        &["check", "111111111111"],
    ] {
        let output = program.output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(
            said.contains("2 images begin with 111111111111") && said.contains(&twin),
            "{said}"
        );
    }
}

#[test]
fn names_are_printed_as_they_are_begun() {
    let program = known();
    let names = |word: &str| {
        let output = program.output(&["complete", "images", "--", word]);
        assert!(output.status.success() && output.stderr.is_empty());
        text(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(""),
        [
            "333333333333",
            "nginx:1.27",
            "registry.lan:5000/app:1",
            "registry.lan:5000/app:2"
        ]
    );
    assert_eq!(names("ng"), ["nginx:1.27"]);
    assert_eq!(names("docker.io/l"), ["docker.io/library/nginx:1.27"]);
    assert!(names("other").is_empty());
    // Containers whose files are kept.
    fs::create_dir_all(program.root().join("containers/web")).unwrap();
    assert_eq!(text(&program.output(&["complete", "containers"]).stdout), "web\n");
}

#[test]
fn names_of_nothing_are_none() {
    let program = Program::new();
    let output = program.output(&["complete", "images", "containers"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    assert!(!program.root().exists(), "it made its directories");
    fs::create_dir_all(program.root()).unwrap();
    fs::write(program.root().join("images"), "no directory").unwrap();
    let output = program.output(&["complete", "images"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

/// The words that bash would offer at the end of the line.
fn offered(program: &Program, line: &str) -> Vec<String> {
    let script = r#"
        source <(xebec completion bash)
        COMP_LINE=$1 COMP_POINT=${#1}
        # As bash breaks the line.
        line=${1//:/ : }
        COMP_WORDS=($line)
        [[ $1 == *' ' ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
        _xebec_with_names xebec "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    shell(
        program,
        Command::new("bash").args(["--norc", "-c", script, "bash", line]),
    )
}

/// The lines that a shell prints, which finds the program, and as its working directory the parent of the root directory.
fn shell(program: &Program, command: &mut Command) -> Vec<String> {
    let directory = Path::new(env!("CARGO_BIN_EXE_xebec")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", directory.display()));
    command.current_dir(program.root().parent().unwrap());
    let output = program.with_directories(command).output().unwrap();
    assert_eq!(text(&output.stderr), "", "{command:?}");
    let lines = text(&output.stdout);
    let lines = lines.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// A root directory with images, a container and a volume, and beside it `other` with others.
fn two_roots() -> Program {
    let program = known();
    let other = program.root().parent().unwrap().join("other");
    for directory in ["containers/theirs", "volumes/theirdata"] {
        fs::create_dir_all(other.join(directory)).unwrap();
    }
    fs::create_dir_all(program.root().join("containers/web")).unwrap();
    fs::create_dir_all(program.root().join("volumes/wwwdata")).unwrap();
    program
}

/// Whether a shell is here, and says if not.
fn is_here(shell: &str) -> bool {
    let found = Command::new(shell).args(["-c", "true"]).status();
    if found.is_err() {
        println!("SKIPPED: there is no {shell} here");
    }
    found.is_ok()
}

#[test]
fn fish_completes_names() {
    if !is_here("fish") {
        return;
    }
    let program = two_roots();
    for (line, expected) in [
        ("xebec stop ", &["web"][..]),
        ("xebec cache pin ng", &["nginx:1.27"]),
        ("xebec run -v www", &["wwwdata"]),
        ("xebec --root other stop ", &["theirs"]),
        ("xebec --root=other --run x stop ", &["theirs"]),
        ("xebec stop --root other ", &["theirs"]),
    ] {
        let script = "xebec completion fish | source; complete -C $argv[1]";
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", script, line]);
        let offered = shell(&program, &mut fish);
        let names: Vec<&str> = offered
            .iter()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(names, expected, "{line}");
    }
}

/// zsh completes on a terminal only: it gets one, the line, a tab, and a key that writes down the line as it is then.
#[test]
fn zsh_completes_names() {
    if !is_here("zsh") {
        return;
    }
    let program = two_roots();
    let script = r#"
        zmodload zsh/zpty
        export LINE=$1 RESULT=$2
        zpty shell zsh -f -i
        zpty -w shell 'show() { print -r -- "$BUFFER" > $RESULT }; zle -N show; bindkey "^X" show; bindkey "^I" expand-or-complete'
        zpty -w shell 'autoload -Uz compinit; compinit -u -D; source <(xebec completion zsh); begin() { BUFFER=$LINE; CURSOR=$#LINE }; zle -N begin; bindkey "^B" begin; print ready-$((6 * 7))'
        zpty -r -m shell said '*ready-42*'
        zpty -w -n shell $'\x02\t\x18'
        repeat 300; do [[ -s $RESULT ]] && break; sleep 0.1; done
        zpty -d shell
        cat $RESULT
    "#;
    for (number, (line, expected)) in [
        ("xebec stop w", "xebec stop web "),
        ("xebec cache pin ng", "xebec cache pin nginx:1.27 "),
        ("xebec --root other stop t", "xebec --root other stop theirs "),
        ("xebec --root=other stop t", "xebec --root=other stop theirs "),
    ]
    .into_iter()
    .enumerate()
    {
        let result = program.root().with_file_name(format!("zsh-{number}"));
        let mut zsh = Command::new("zsh");
        zsh.env("TERM", "vt100");
        zsh.args(["-f", "-c", script, "zsh", line]).arg(&result);
        assert_eq!(shell(&program, &mut zsh), [expected], "{line}");
    }
}

#[test]
fn bash_completes_names() {
    let program = two_roots();
    fs::create_dir_all(program.root().join("networks")).unwrap();
    fs::write(program.root().join("networks/house.conflist"), "{}").unwrap();
    for (line, expected) in [
        ("xebec inspect we", &["web"][..]),
        ("xebec inspect web ng", &["nginx:1.27"]),
        ("xebec run --network ho", &["host", "house"]),
        ("xebec run --rm --net b", &["bridge"]),
        ("xebec run -v www", &["wwwdata"]),
        ("xebec record --volume www", &["wwwdata"]),
        ("xebec run ng", &["nginx:1.27"]),
        (
            "xebec --run /x -v run --rm --name registry -e A=b ng",
            &["nginx:1.27"],
        ),
        ("xebec cache pin ng", &["nginx:1.27"]),
        ("xebec rmi nginx:1.27 ng", &["nginx:1.27"]),
        ("xebec explain we", &["web"]),
        ("xebec --root other stop ", &["theirs"]),
        ("xebec stop --root other --run=x ", &["theirs"]),
        ("xebec --root=other run -v th", &["theirdata"]),
        // Bash replaces only the text after the last colon.
        ("xebec rmi nginx:", &["1.27"]),
        ("xebec mount registry.lan:5000/app:", &["1", "2"]),
        ("xebec rmi registry.lan:5", &["5000/app:1", "5000/app:2"]),
    ] {
        assert_eq!(offered(&program, line), expected, "{line}");
    }
    // Where no name belongs.
    for line in [
        "xebec run nginx:1.27 ng",
        "xebec run --name ng",
        "xebec umount ng",
    ] {
        let offered = offered(&program, line);
        assert!(
            !offered.iter().any(|word| word.contains("nginx")),
            "{line}: {offered:?}"
        );
    }
    assert!(offered(&program, "xebec rmi --j").contains(&"--json".to_owned()));
    assert!(offered(&program, "xebec rm").contains(&"rmi".to_owned()));
    // A directory of the host may stand where a volume may.
    assert!(offered(&program, "xebec run -v /et").contains(&"/etc".to_owned()));
    // Options and commands that help hides.
    assert!(offered(&program, "xebec run --priv").is_empty());
    assert!(!offered(&program, "xebec com").contains(&"complete".to_owned()));
    assert!(!offered(&program, "xebec daemon ").contains(&"worker".to_owned()));
}

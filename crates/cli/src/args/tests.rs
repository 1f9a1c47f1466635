//! How command lines are read.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::{Cli, Command};

fn read(line: &str) -> Result<Cli, clap::Error> {
    // A word of two quotes is an empty one.
    let words = line.split(' ').map(|word| word.trim_matches('"'));
    let words = std::iter::once("xebec").chain(words).map(OsString::from);
    Cli::read(&words.collect::<Vec<_>>())
}

/// The start that `run` or `record` asks for: image, command, and options of its own that it was given.
fn started(line: &str) -> (String, Vec<String>, Option<String>) {
    let cli = read(line).unwrap();
    let (service, container) = match cli.command {
        Command::Run(args) => (args.service, args.container),
        Command::Record(args) => (args.service, args.container),
        other => panic!("{other:?}"),
    };
    (service.image.image, service.command, container.entrypoint)
}

#[test]
fn the_definitions_fit_together() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
    Cli::documented().debug_assert();
}

#[test]
fn what_follows_the_image_is_the_containers() {
    for command in ["run", "record"] {
        for rest in [
            "-v",
            "--version",
            "--help",
            "-h",
            "--rm --entrypoint other",
            "sh -c true",
            "--root /elsewhere",
            "-- ls",
            "-v -- --volume",
            "--probe",
        ] {
            let (image, words, entrypoint) = started(&format!("{command} --entrypoint nginx IMG {rest}"));
            assert_eq!(image, "IMG");
            assert_eq!(words.join(" "), rest, "{command}");
            assert_eq!(entrypoint.as_deref(), Some("nginx"));
        }
        assert_eq!(
            started(&format!("{command} IMG")),
            ("IMG".to_owned(), vec![], None)
        );
        let (image, words, _) = started(&format!("{command} -- IMG -v"));
        assert_eq!((image.as_str(), words.concat().as_str()), ("IMG", "-v"));
    }
}

#[test]
fn what_precedes_the_image_is_xebecs() {
    for (line, kind) in [
        ("run --nosuch IMG", ErrorKind::UnknownArgument),
        ("run -x IMG", ErrorKind::UnknownArgument),
        ("run", ErrorKind::MissingRequiredArgument),
        ("run --rm", ErrorKind::MissingRequiredArgument),
        ("record --repeat 2", ErrorKind::MissingRequiredArgument),
        ("run --version", ErrorKind::DisplayVersion),
        ("run --rm --help", ErrorKind::DisplayHelp),
    ] {
        assert_eq!(read(line).unwrap_err().kind(), kind, "{line}");
    }
    let Command::Run(args) = read("run --platform linux/386 --rm IMG --platform x")
        .unwrap()
        .command
    else {
        panic!();
    };
    assert!(args.rm);
    assert_eq!(args.service.image.platform.as_deref(), Some("linux/386"));
}

#[test]
fn a_list_of_recordings_needs_no_image() {
    assert_eq!(started("record --list").0, "");
    assert_eq!(started("record --list IMG").0, "IMG");
    for line in ["record", "record --rm", "record --merge"] {
        let kind = read(line).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::MissingRequiredArgument, "{line}");
    }
}

#[test]
fn help_shows_image_and_command() {
    for line in ["run --help", "record --help", "run --rm", "record --nosuch"] {
        let text = read(line).unwrap_err().to_string();
        let usage = ["<IMAGE> [COMMAND]...", "[IMAGE] [COMMAND]..."];
        assert!(usage.iter().any(|usage| text.contains(usage)), "{line}: {text}");
    }
}

#[test]
fn an_empty_entrypoint_is_none() {
    let entrypoint = |line: &str| {
        let Command::Run(args) = read(line).unwrap().command else {
            panic!()
        };
        args.container.service(&[]).entrypoint
    };
    assert_eq!(entrypoint("run IMG"), None);
    assert_eq!(entrypoint("run --entrypoint sh IMG"), Some(vec!["sh".to_owned()]));
    assert_eq!(entrypoint("run --entrypoint \"\" IMG echo"), Some(vec![]));
    assert_eq!(entrypoint("run --entrypoint= IMG echo"), Some(vec![]));
}

#[test]
fn flags_may_have_a_value_and_of_two_the_later_one_counts() {
    let run = |options: &str| {
        let line = format!("run {options} IMG");
        let Command::Run(args) = read(&line).unwrap().command else {
            panic!("{line}")
        };
        args
    };
    for (options, is_removed) in [
        ("--rm=true", true),
        ("--rm=false", false),
        ("--rm=false -d --restart always --cpu-shares 0", false),
        ("--rm --rm", true),
        ("--rm --rm=false", false),
        ("--rm=false --rm -m 64m", true),
    ] {
        assert_eq!(run(options).rm, is_removed, "{options}");
    }
    let both = run("-it --init=true");
    assert!(both.interactive && both.tty);
    let memory = run("-m 64m --memory 128m").container.memory;
    assert_eq!(memory.map(|memory| memory.0), Some(128 << 20));
    assert_eq!(run("-e A=1 -e B=2").container.variables.all().len(), 2);
    run("--privileged=false");
    assert!(read("run --privileged=true IMG").is_err());
    for (line, is_all) in [("ps --all=true", true), ("ps -a --all=false", false)] {
        let Command::Ps(args) = read(line).unwrap().command else {
            panic!("{line}")
        };
        assert_eq!(args.all, is_all, "{line}");
    }
    // A value that is none, and a mistake beside a value that is one.
    for (line, said) in [
        ("run --rm=perhaps IMG", "perhaps"),
        ("run --rm=true --nosuch IMG", "--nosuch"),
    ] {
        let error = read(line).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let shown = read("run --help").unwrap_err().to_string();
    assert!(shown.contains("--rm") && !shown.contains("--rm["), "{shown}");
}

#[test]
fn a_limit_of_nothing_is_none_as_in_docker() {
    let line = "run --memory 0 --memory-swap 0 --memory-reservation 0 --cpus 0 --shm-size 0 IMG";
    let Command::Run(args) = read(line).unwrap().command else {
        panic!()
    };
    let options = args.container.options(&args.service.image, &[]);
    let confinement = options.confinement;
    assert!(confinement.memory.is_none() && confinement.memory_swap.is_none());
    assert!(confinement.memory_reservation.is_none() && confinement.cpus.is_none());
    assert!(confinement.shm_size.is_none());
    assert!(read("run --memory=-1 IMG").is_err());
}

#[test]
fn logs_shows_all_lines_for_a_negative_number() {
    for (line, tail) in [
        ("logs --tail -1 web", None),
        ("logs -n -1 web", None),
        ("logs --tail=-1 web", None),
        ("logs --tail all web", None),
        ("logs --tail 2 web", Some(2)),
    ] {
        let Command::Logs(args) = read(line).unwrap().command else {
            panic!("{line}")
        };
        assert_eq!((args.tail.0, args.container.as_str()), (tail, "web"), "{line}");
    }
    assert!(read("logs --tail some web").is_err());
}

#[test]
fn v_prints_more_unless_the_command_has_another() {
    for (line, verbose) in [
        ("images", 0),
        ("-v images", 1),
        ("-vv images", 2),
        ("images -v", 1),
        ("cache stat -vv", 2),
        ("--verbose --verbose images", 2),
        ("images --verbose", 1),
        ("-vv run IMG", 2),
        ("run --verbose --verbose IMG", 2),
        ("--verbose run IMG -v", 1),
        ("-v record -v /data:/data IMG", 1),
        ("run -v /data:/data IMG --verbose", 0),
    ] {
        assert_eq!(read(line).unwrap().verbose, verbose, "{line}");
    }
}

//! `trust.toml` on disk, the judgement of each root under each rule, and what a refused user reads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use xebec_format::digest::Digest;
use xebec_trust::{
    Binding, Evidence, Listing, Naming, Policy, PolicyError, RepositoryName, Root, Roots, SignatureManifest,
    Signing, TrustFile, sign, verify,
};

use crate::support::{key, repository};

fn write_key(directory: &Path, number: u8) {
    let pem = key(number).public().unwrap().to_pem().unwrap();
    fs::write(directory.join(format!("{number}.pub")), pem).unwrap();
}

/// Writes `text` and keys 1 to 3 beside it, and loads it.
fn load(text: &str) -> Result<Policy, PolicyError> {
    let directory = tempfile::tempdir().unwrap();
    (1..=3).for_each(|number| write_key(directory.path(), number));
    let path = directory.path().join("trust.toml");
    fs::write(&path, text).unwrap();
    Policy::load(&path)
}

fn load_error(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

/// A signing by key `number` for `image`, as verification would give it.
fn signing(number: u8, image: &RepositoryName) -> Signing {
    let artifact = Digest::of(b"artifact");
    let push = sign(&key(number), image, artifact, None).unwrap();
    let text = format!("[[key]]\nname = \"k\"\nfile = \"{number}.pub\"\nrepositories = [\"**\"]\n");
    let manifest = SignatureManifest::parse(&push.manifest).unwrap();
    verify(&load(&text).unwrap(), image, artifact, &manifest, &[push.payload]).unwrap()
}

fn listed(image: &RepositoryName) -> Roots {
    Roots::none().listed(&Listing::new(image), image)
}

fn bound() -> Roots {
    let manifest = Digest::of(b"manifest");
    Roots::none().bound(&Binding::TableOfContents { manifest }, &[manifest])
}

#[test]
fn without_a_file_the_registry_suffices_for_tags() {
    let directory = tempfile::tempdir().unwrap();
    let policy = Policy::load(&directory.path().join("trust.toml")).unwrap();
    let image = repository("r.example.com/app");
    assert_eq!(
        policy.admits(&image, Naming::Tag, &listed(&image)).unwrap(),
        Root::Registry
    );
    assert!(policy.admits(&image, Naming::Digest, &listed(&image)).is_err());
    assert!(policy.admits(&image, Naming::Tag, &Roots::none()).is_err());
    assert!(!policy.has_keys_for(&image));
    // The template says the same.
    fs::write(directory.path().join("trust.toml"), Policy::template()).unwrap();
    let policy = Policy::load(&directory.path().join("trust.toml")).unwrap();
    assert_eq!(
        policy.admits(&image, Naming::Tag, &listed(&image)).unwrap(),
        Root::Registry
    );
}

#[test]
fn every_root_under_every_rule() {
    let text = "registry-root = \"never\"\n\
                [[registry]]\nprefix = \"open.example.com\"\nregistry-root = \"tag\"\n\
                [[registry]]\nprefix = \"open.example.com/secret\"\nregistry-root = \"never\"\n\
                [[key]]\nname = \"ci\"\nfile = \"1.pub\"\nrepositories = [\"**\"]\n";
    let policy = load(text).unwrap();
    for (name, registry_suffices) in [
        ("open.example.com/app", true),
        ("OPEN.example.com:443/app", true),
        ("open.example.com/secrets", true),
        ("open.example.com/secret", false),
        ("open.example.com/secret/deep/er", false),
        ("open.example.com:8443/app", false),
        ("closed.example.com/app", false),
        ("nginx", false),
    ] {
        let image = repository(name);
        for naming in [Naming::Tag, Naming::Digest] {
            let root = |roots: &Roots| policy.admits(&image, naming, roots).ok();
            let by_registry = (registry_suffices && naming == Naming::Tag).then_some(Root::Registry);
            assert_eq!(root(&Roots::none()), None);
            assert_eq!(root(&listed(&image)), by_registry, "{name} by {naming}");
            assert_eq!(root(&Roots::none().proven()), Some(Root::Proven));
            assert_eq!(root(&listed(&image).proven()), Some(Root::Proven));
            assert_eq!(
                root(&Roots::none().proven().signed(signing(1, &image))),
                Some(Root::Signed)
            );
            assert_eq!(root(&listed(&image).signed(signing(2, &image))), by_registry);
            assert_eq!(root(&bound()), Some(Root::Bound));
            assert_eq!(root(&bound().proven().disproved("x")), None);
        }
    }
}

#[test]
fn a_key_counts_where_the_file_says() {
    let (team, other) = (
        repository("r.example.com/team/app"),
        repository("r.example.com/other"),
    );
    let entry = |repositories: &str| {
        load(&format!(
            "[[key]]\nname = \"ci\"\nfile = \"1.pub\"\nrepositories = {repositories}\n"
        ))
        .unwrap()
    };
    let admits = |policy: &Policy, image: &RepositoryName, signing: Signing| {
        policy
            .admits(image, Naming::Digest, &Roots::none().signed(signing))
            .ok()
    };
    let policy = entry("[\"x/*\", \"r.example.com/team/*\"]");
    assert!(policy.has_keys_for(&team) && !policy.has_keys_for(&other));
    assert_eq!(admits(&policy, &team, signing(1, &team)), Some(Root::Signed));
    assert_eq!(
        admits(&policy, &other, signing(1, &other)),
        None,
        "not valid there"
    );
    assert_eq!(
        admits(&policy, &team, signing(1, &other)),
        None,
        "signed for another repository"
    );
    assert_eq!(
        admits(&policy, &team, signing(2, &team)),
        None,
        "not a trusted key"
    );
    // A fact that was noted once is judged by the policy of today.
    assert_eq!(
        admits(&load("").unwrap(), &team, signing(1, &team)),
        None,
        "the key was taken out"
    );
}

#[test]
fn a_chain_rests_on_its_weakest_member() {
    let image = repository("r.example.com/app");
    let policy = Policy::default();
    let chain = |naming, members: &[Roots]| policy.admits_chain(&image, naming, members).ok();
    let proven = Roots::none().proven();
    assert_eq!(
        chain(Naming::Digest, &[bound(), proven.clone()]),
        Some(Root::Proven)
    );
    assert_eq!(
        chain(Naming::Tag, &[bound(), listed(&image), proven.clone()]),
        Some(Root::Registry)
    );
    assert_eq!(
        chain(Naming::Digest, &[bound(), listed(&image), proven.clone()]),
        None
    );
    assert_eq!(chain(Naming::Tag, &[bound(), Roots::none()]), None);
    assert_eq!(chain(Naming::Digest, &[]), Some(Root::Bound));
    assert_eq!(Root::weakest([Root::Signed, Root::Bound]), Some(Root::Signed));
    assert!(!Root::Registry.holds_for_digest() && Root::Proven.holds_for_digest());
}

#[test]
fn a_refusal_says_what_was_missing_and_how_to_get_it() {
    let image = repository("r.example.com/app");
    let all = [
        "`xebec index --bind",
        "`xebec index --sign KEY",
        "`xebec check --prove",
        "trust.toml",
    ];
    let refusal = |policy: &Policy, naming, roots: &Roots| {
        let refusal = policy.admits(&image, naming, roots).unwrap_err();
        assert!(!refusal.is_alarm());
        serde_json::to_value(&refusal).unwrap();
        let text = refusal.to_string();
        all.iter()
            .for_each(|remedy| assert!(text.contains(remedy), "no {remedy} in: {text}"));
        text
    };
    let text = refusal(&Policy::default(), Naming::Digest, &listed(&image));
    assert!(
        text.contains("named by digest") && text.contains("none yet"),
        "{text}"
    );
    assert!(!text.contains("`xebec index --push"), "{text}");
    let text = refusal(&Policy::default(), Naming::Tag, &Roots::none());
    assert!(text.contains("nothing vouches"), "{text}");
    assert!(
        text.contains("`xebec index --push"),
        "the registry's list suffices: {text}"
    );

    let never = load(
        "[[registry]]\nprefix = \"r.example.com\"\nregistry-root = \"never\"\n\
         [[key]]\nname = \"ci\"\nfile = \"1.pub\"\nrepositories = [\"r.example.com/*\"]\n\
         [[key]]\nname = \"elsewhere\"\nfile = \"2.pub\"\nrepositories = [\"x.example.com/*\"]\n",
    );
    let roots = listed(&image)
        .signed(signing(1, &repository("r.example.com/other")))
        .signed(signing(2, &image))
        .signed(signing(3, &image));
    let text = refusal(&never.unwrap(), Naming::Tag, &roots);
    assert!(text.contains("never suffices for r.example.com"), "{text}");
    assert!(!text.contains("`xebec index --push"), "{text}");
    assert!(
        text.contains("registry-root = \"tag\"") && text.contains("(now: ci)"),
        "{text}"
    );
    assert!(text.contains("\"ci\" signed for r.example.com/other"), "{text}");
    assert!(
        text.contains("\"elsewhere\" is not valid for r.example.com/app"),
        "{text}"
    );
    assert!(text.contains("is not in trust.toml"), "{text}");
}

/// Signing indexes helps no recording: the message names the recording, and its remedy.
#[test]
fn a_refused_recording_is_called_one() {
    let image = repository("r.example.com/app");
    let evidence = Evidence {
        listed: Some(Listing::new(&image)),
        ..Evidence::default()
    };
    let refusal = evidence
        .root(&Policy::default(), &image, Naming::Digest)
        .unwrap_err()
        .to_string();
    assert!(
        refusal.starts_with("the recording of r.example.com/app was only found"),
        "{refusal}"
    );
    let cures: Vec<&str> = refusal.split('`').skip(1).step_by(2).collect();
    assert!(cures[0].starts_with("xebec record --sign KEY "), "{refusal}");
    assert!(!refusal.contains("index"), "{refusal}");
    let nothing = Evidence::default().root(&Policy::default(), &image, Naming::Tag);
    let nothing = nothing.unwrap_err().to_string();
    assert!(nothing.contains("this host did not make it"), "{nothing}");
}

#[test]
fn files_that_cannot_be_relied_on_are_refused() {
    let key = |name: &str, file: &str, repositories: &str| {
        format!("[[key]]\nname = {name:?}\nfile = {file:?}\nrepositories = {repositories}\n")
    };
    let all = "[\"**\"]";
    assert!(load_error(&key("ci", "missing.pub", all)).contains("missing.pub"));
    assert!(load_error(&key("ci", "trust.toml", all)).contains("not a PEM file"));
    assert!(load_error(&key("ci", ".", all)).contains("not a file"));
    assert!(load_error(&key("", "1.pub", all)).contains("printable name"));
    assert!(load_error(&key("ci", "1.pub", "[]")).contains("[\"**\"]"));
    assert!(load_error(&key("ci", "1.pub", "[\"https://r/*\"]")).contains("\"ci\""));
    assert!(load_error(&(key("a", "1.pub", all) + &key("a", "2.pub", all))).contains("same name"));
    assert!(load_error(&(key("a", "1.pub", all) + &key("b", "1.pub", all))).contains("same key"));
    let twice = "[[registry]]\nprefix = \"R\"\nregistry-root = \"tag\"\n\
                 [[registry]]\nprefix = \"r\"\nregistry-root = \"never\"\n";
    assert!(load_error(twice).contains("two [[registry]]"));
    let error = load_error("[[registry]]\nprefix = \"r/*\"\nregistry-root = \"tag\"\n");
    assert!(error.contains("prefix"), "{error}");
    assert!(load_error("nonsense").contains("trust.toml"));
    assert!(load(&(key("a", "1.pub", all) + &key("b", "2.pub", all))).is_ok());

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trust.toml");
    fs::create_dir(&path).unwrap();
    assert!(matches!(Policy::load(&path), Err(PolicyError::NotAFile { .. })));
    fs::remove_dir(&path).unwrap();
    fs::write(&path, key("ci", "1.pub", all)).unwrap();
    write_key(directory.path(), 1);
    for name in ["trust.toml", "1.pub"] {
        let file = directory.path().join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(
            matches!(Policy::load(&path), Err(PolicyError::WritableByAll { .. })),
            "{name}"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    }
    Policy::load(&path).unwrap();
}

#[test]
fn as_many_entries_as_may_be_are_read_and_no_more() {
    let key =
        |number: usize| format!("[[key]]\nname = \"{number}\"\nfile = \"f\"\nrepositories = [\"**\"]\n");
    let registry = |number: usize| format!("[[registry]]\nprefix = \"r{number}\"\nregistry-root = \"tag\"\n");
    let parse = |entry: &dyn Fn(usize) -> String, count: usize| {
        let text: String = (0..count).map(entry).collect();
        let file = TrustFile::parse(text.as_bytes());
        file.map(|file| file.keys.len() + file.registries.len())
            .map_err(|error| error.to_string())
    };
    assert_eq!(parse(&key, 64), Ok(64));
    assert_eq!(parse(&key, 65), Err("more than 64 [[key]] entries".to_owned()));
    assert_eq!(parse(&registry, 4096), Ok(4096));
    assert_eq!(
        parse(&registry, 4097),
        Err("more than 4096 [[registry]] entries".to_owned())
    );
}

/// The default policy would admit what the file forbids.
#[test]
fn a_file_that_cannot_be_read_is_not_a_missing_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trust.toml");
    assert_eq!(Policy::key_files(&path).unwrap(), []);
    fs::write(&path, Policy::template()).unwrap();
    // Below a file nothing can be.
    let below = path.join("trust.toml");
    assert!(matches!(Policy::load(&below), Err(PolicyError::Read { .. })));
    assert!(matches!(Policy::key_files(&below), Err(PolicyError::Read { .. })));
    fs::write(&path, vec![b' '; 1024 * 1024 + 1]).unwrap();
    let error = Policy::load(&path).unwrap_err();
    assert!(matches!(error, PolicyError::NotAFile { .. }), "{error}");
}

#[test]
fn the_files_of_keys_are_named_without_being_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trust.toml");
    let entry = |name: &str, file: &str| {
        format!("[[key]]\nname = {name:?}\nfile = {file:?}\nrepositories = [\"**\"]\n")
    };
    fs::write(&path, entry("ci", "keys/ci.pub") + &entry("root", "/root.pub")).unwrap();
    let expected = [
        ("ci".to_owned(), directory.path().join("keys/ci.pub")),
        ("root".to_owned(), Path::new("/root.pub").to_owned()),
    ];
    assert_eq!(Policy::key_files(&path).unwrap(), expected);
}

/// A user who attaches an index in the registry does not displace one that is worth more.
#[test]
fn of_several_indexes_the_strongest_is_chosen_and_of_equals_the_first() {
    let image = repository("r.example.com/app");
    let policy = Policy::default();
    let choose =
        |naming, indexes: &[Roots]| policy.choose(&image, naming, indexes.iter().cloned().enumerate());
    let proven = Roots::none().proven();
    let chosen = |indexes: &[Roots]| choose(Naming::Tag, indexes).ok();
    let all = [listed(&image), proven.clone(), bound(), proven.clone(), bound()];
    assert_eq!(chosen(&all), Some((2, Root::Bound)));
    assert_eq!(chosen(&all[..2]), Some((1, Root::Proven)));
    assert_eq!(
        chosen(&[Roots::none(), proven.clone(), listed(&image)]),
        Some((1, Root::Proven))
    );
    assert_eq!(
        chosen(&[listed(&image), listed(&image)]),
        Some((0, Root::Registry))
    );
    let refused = |indexes: &[Roots]| choose(Naming::Digest, indexes).unwrap_err();
    assert_eq!(refused(&[]), None);
    let disproved = |why: &str| Roots::none().disproved(why);
    // The alarm is told, wherever it comes, and otherwise what is wrong with the first.
    for indexes in [
        [disproved("one"), Roots::none(), listed(&image)],
        [Roots::none(), disproved("one"), listed(&image)],
        [Roots::none(), listed(&image), disproved("one")],
    ] {
        let alarm = refused(&indexes).unwrap();
        assert!(alarm.is_alarm() && alarm.to_string().contains("(one)"), "{alarm}");
    }
    let first = refused(&[Roots::none(), listed(&image)]).unwrap().to_string();
    assert!(first.contains("nothing vouches"), "{first}");
    // One that is wrong says nothing against another.
    assert_eq!(chosen(&[disproved("one"), proven]), Some((1, Root::Proven)));
}

#[test]
fn a_remedy_is_named_where_it_helps_and_nowhere_else() {
    let image = repository("r.example.com/app");
    let never = load("registry-root = \"never\"\n").unwrap();
    let tag = Policy::default();
    let (nothing, there) = (Roots::none(), listed(&image));
    let (push, allow) = ("`xebec index --push", "or allow registry-root = \"tag\"");
    for (policy, naming, roots, helps) in [
        (&tag, Naming::Tag, &nothing, Some(push)),
        (&tag, Naming::Digest, &nothing, None),
        (&tag, Naming::Digest, &there, None),
        (&never, Naming::Tag, &nothing, None),
        (&never, Naming::Tag, &there, Some(allow)),
        (&never, Naming::Digest, &nothing, None),
        (&never, Naming::Digest, &there, None),
    ] {
        let text = policy.admits(&image, naming, roots).unwrap_err().to_string();
        for remedy in [push, allow] {
            assert_eq!(text.contains(remedy), helps == Some(remedy), "{remedy}: {text}");
        }
        let by_default = naming == Naming::Tag && roots == &there;
        assert_eq!(text.contains("never suffices by default"), by_default, "{text}");
    }
}

#[test]
fn a_recording_of_this_host_needs_no_other_root() {
    let image = repository("r.example.com/app");
    let never = load(
        "registry-root = \"never\"\n[[key]]\nname = \"ci\"\nfile = \"1.pub\"\nrepositories = [\"**\"]\n",
    );
    let never = never.unwrap();
    let none = Evidence::default();
    let own = Evidence {
        own: true,
        ..Evidence::default()
    };
    let theirs = Evidence {
        own: false,
        listed: Some(Listing::new(&image)),
        signed: Some(signing(1, &image)),
    };
    let root = |evidence: &Evidence, policy: &Policy| evidence.root(policy, &image, Naming::Digest).ok();
    assert_eq!(root(&none, &never), None);
    assert_eq!(root(&own, &never), Some(Root::Bound));
    assert_eq!(root(&theirs, &never), Some(Root::Signed));
    assert_eq!(root(&theirs, &Policy::default()), None, "nobody trusts the key");
    let by_tag = theirs.root(&Policy::default(), &image, Naming::Tag).ok();
    assert_eq!(by_tag, Some(Root::Registry));
    // Of both, all facts count.
    for both in [own.clone().or(&theirs), theirs.clone().or(&own)] {
        assert!(both.own);
        assert_eq!((&both.listed, &both.signed), (&theirs.listed, &theirs.signed));
    }
    assert_eq!(theirs.clone().or(&none), theirs);
    assert_eq!(none.or(&Evidence::default()), Evidence::default());
}

//! `[[place]]` and `[[copies]]`: other places than `[storage]`, and which copies are kept there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;
use xebec_dedup::Cutting;
use xebec_placement::{Form, Kept, PlaceName, Placement, Wanted};
use xebec_policy::copies::{CopyRule, CopyRules};
use xebec_store::{ObjectsConfig, PlaceConfig, StoreConfig};

use super::file;
use super::problem::{Environment, Problem};
use super::storage;
use crate::deduplication::DeduplicationSettings;

/// The places beside `main`, which is that of `store`.
pub(super) fn places(
    listed: Vec<Spanned<file::Place>>,
    store: &StoreConfig,
    environment: Environment<'_>,
) -> Result<Vec<PlaceConfig>, Problem> {
    let mut places = Vec::new();
    for listed in listed {
        let place = place(listed, store, &places, environment)?;
        places.push(place);
    }
    Ok(places)
}

fn place(
    listed: Spanned<file::Place>,
    store: &StoreConfig,
    earlier: &[PlaceConfig],
    environment: Environment<'_>,
) -> Result<PlaceConfig, Problem> {
    let at = listed.span();
    let listed = listed.into_inner();
    let (named_at, name) = (listed.name.span(), listed.name.into_inner().0);
    let wrong = |at, text: String| Problem { at: Some(at), text };
    if name.is_main() {
        let text = "main is the place of [storage]; give this one another name";
        return Err(wrong(named_at, text.to_owned()));
    }
    if earlier.iter().any(|earlier| earlier.name == name) {
        let text = format!("there are two places with the name {name}; give one of them another name");
        return Err(wrong(named_at, text));
    }
    match (listed.directory, listed.s3) {
        (Some(directory), None) => {
            let at = directory.span();
            let root =
                apart(directory.into_inner(), &name, store, earlier).map_err(|text| wrong(at, text))?;
            Ok(PlaceConfig {
                name,
                root: Some(root),
                objects: ObjectsConfig::Directory,
            })
        }
        (None, Some(s3)) => {
            let objects = storage::bucket(s3.into(), false, environment)?;
            match shared(&objects, store, earlier) {
                None => Ok(PlaceConfig {
                    name,
                    root: None,
                    objects,
                }),
                Some(other) => Err(wrong(
                    at,
                    format!(
                        "the place {name} is the bucket of the place {other}, and what is lost there is lost twice; give it another bucket, or \
                         another prefix"
                    ),
                )),
            }
        }
        _ => Err(wrong(
            at,
            format!(
                "the place {name} has both a directory and a bucket, or neither; give it `directory` or `s3`"
            ),
        )),
    }
}

/// The directory of a place, if it has nothing in common with that of another.
fn apart(
    directory: PathBuf,
    name: &PlaceName,
    store: &StoreConfig,
    earlier: &[PlaceConfig],
) -> Result<PathBuf, String> {
    if !directory.is_absolute() {
        return Err(format!(
            "the directory {directory:?} of the place {name} depends on where the registry is started; begin it with \"/\""
        ));
    }
    // The embedded database is there even if blobs are in a bucket.
    let root = std::path::absolute(&store.root).unwrap_or_else(|_| store.root.clone());
    let others = earlier.iter().filter_map(|place| {
        let root = place.root.as_deref()?;
        Some((format!("that of the place {}", place.name), plain(root)))
    });
    let mut all = std::iter::once(("the root of [storage]".to_owned(), plain(&root))).chain(others);
    let wanted = plain(&directory);
    match all.find(|(_, other)| wanted.starts_with(other) || other.starts_with(&wanted)) {
        None => Ok(directory),
        Some((whose, _)) => Err(format!(
            "the directory {directory:?} of the place {name} is {whose}, or one is inside the other; give the place a directory of its own, on \
             another disk"
        )),
    }
}

/// A path without `.` and `..`. Links are not followed: the directory need not be there yet.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            _ => plain.push(component),
        }
    }
    plain
}

/// The place that has the same part of the same bucket.
fn shared(objects: &ObjectsConfig, store: &StoreConfig, earlier: &[PlaceConfig]) -> Option<PlaceName> {
    let bucket = |objects: &ObjectsConfig| match objects {
        ObjectsConfig::Directory => None,
        ObjectsConfig::S3 {
            endpoint,
            bucket,
            prefix,
            ..
        } => Some((endpoint.clone(), bucket.clone(), prefix.clone())),
    };
    let wanted = bucket(objects);
    let is_same = |other: &ObjectsConfig| bucket(other) == wanted;
    if is_same(&store.objects) {
        return Some(PlaceName::main());
    }
    let other = earlier.iter().find(|earlier| is_same(&earlier.objects));
    other.map(|other| other.name.clone())
}

/// What is kept where no rule says it: one copy on `main`.
pub(super) fn without_rules(deduplication: &DeduplicationSettings) -> CopyRules {
    let on = Placement::At(PlaceName::main());
    let apart = match deduplication.chunks {
        Cutting::Files => Form::Files,
        Cutting::Contents => Form::Chunks,
    };
    let forms: &[Form] = match (deduplication.enabled, deduplication.keep_intact) {
        (false, _) => &[Form::Intact],
        (true, true) => &[Form::Intact, apart],
        (true, false) => &[apart],
    };
    let kept: Vec<Kept> = forms
        .iter()
        .map(|form| Kept {
            form: *form,
            on: on.clone(),
        })
        .collect();
    // Two forms that exclude each other are not among them.
    CopyRules::default_for(Wanted::of(&kept).unwrap_or_default())
}

/// The rules about copies.
pub(super) fn copies(
    listed: Vec<Spanned<CopyRule>>,
    places: &[PlaceConfig],
    deduplication: &DeduplicationSettings,
) -> Result<CopyRules, Problem> {
    let named = places.iter().map(|place| place.name.clone());
    let places: BTreeSet<PlaceName> = named.chain([PlaceName::main()]).collect();
    let mut rules = without_rules(deduplication);
    for listed in listed {
        let at = listed.span();
        let rule = listed.into_inner();
        let apart = taken_apart(&rule).filter(|_| !deduplication.enabled);
        let added = match apart {
            Some(kept) => Err(format!(
                "the rule of copies for {:?} keeps {kept}, and nothing is taken apart here; set enabled = true in [deduplication], or keep intact \
                 copies only",
                rule.repositories.to_string()
            )),
            None => rules.add(rule, &places).map_err(|error| error.to_string()),
        };
        added.map_err(|text| Problem { at: Some(at), text })?;
    }
    Ok(rules)
}

/// A copy of a rule that needs deduplication.
fn taken_apart(rule: &CopyRule) -> Option<Kept> {
    let popular = rule.popular.iter().flat_map(|popular| &popular.keep);
    let mut all = rule.keep.iter().chain(popular);
    all.find(|kept| kept.0.form != Form::Intact)
        .map(|kept| kept.0.clone())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let environment = |name: &str| (name == "SECRET").then(|| "s3cr3t".to_owned());
        Config::parse(text, Path::new("r.toml"), &environment).map_err(|error| error.to_string())
    }

    const COLD: &str = "[[place]]\nname = \"cold\"\ndirectory = \"/mnt/cold\"\n";
    const FAR: &str = "[[place]]\nname = \"far\"\ns3 = { bucket = \"b\", prefix = \"/x/\", access_key_env = \"SECRET\", secret_key_env = \"SECRET\" }\n";

    fn wanted(text: &str) -> Wanted {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_directories_and_buckets() {
        let config = parse(&format!("{COLD}{FAR}")).unwrap();
        let [cold, far] = config.store.places.as_slice() else {
            panic!("{:?}", config.store.places);
        };
        assert_eq!(
            (cold.name.as_str(), cold.root.as_deref()),
            ("cold", Some(Path::new("/mnt/cold")))
        );
        assert_eq!(cold.objects, ObjectsConfig::Directory);
        assert_eq!((far.name.as_str(), &far.root), ("far", &None));
        let ObjectsConfig::S3 {
            prefix,
            secret_key,
            public_endpoint,
            ..
        } = &far.objects
        else {
            panic!("{far:?}");
        };
        assert_eq!(
            (prefix.as_str(), secret_key.as_deref(), public_endpoint),
            ("x", Some("s3cr3t"), &None)
        );
        assert!(!format!("{config:?}").contains("s3cr3t"));
    }

    #[test]
    fn faults_of_places_name_the_line() {
        let with = |keys: &str| format!("{COLD}[[place]]\nname = \"b\"\n{keys}");
        let root = "[storage]\nroot = \"/srv/registry\"\n";
        let bucket = "[storage.s3]\nbucket = \"b\"\nprefix = \"x\"\n";
        for (text, line, part) in [
            (
                "[[place]]\nname = \"main\"\ndirectory = \"/a\"".to_owned(),
                2,
                "main is the place of [storage]",
            ),
            (
                "[[place]]\nname = \"A\"\ndirectory = \"/a\"".to_owned(),
                2,
                "not the name of a place",
            ),
            (format!("{COLD}{COLD}"), 5, "two places with the name cold"),
            (with(""), 4, "both a directory and a bucket, or neither"),
            (
                with("directory = \"/b\"\ns3 = { bucket = \"b\" }"),
                4,
                "both a directory and a bucket, or neither",
            ),
            (with("directory = \"b\""), 6, "begin it with"),
            (with("directory = \"/mnt/cold\""), 6, "that of the place cold"),
            (with("directory = \"/mnt/cold/b/\""), 6, "that of the place cold"),
            (with("directory = \"/mnt\""), 6, "that of the place cold"),
            (
                with("directory = \"/mnt/b/../cold\""),
                6,
                "that of the place cold",
            ),
            (
                with("directory = \"/var/lib/xebec-registry\""),
                6,
                "the root of [storage]",
            ),
            (
                format!("{root}[[place]]\nname = \"b\"\ndirectory = \"/srv/registry/./b\""),
                5,
                "the root of [storage]",
            ),
            (
                with("s3 = { bucket = \"b\", public_endpoint = \"https://a\" }"),
                6,
                "public_endpoint",
            ),
            (
                with("s3 = { bucket = \"b\", secret_key_env = \"NOT_SET\" }"),
                6,
                "NOT_SET",
            ),
            (format!("{bucket}{FAR}"), 4, "is the bucket of the place main"),
            (
                format!("{FAR}{}", FAR.replace("far", "near")),
                4,
                "is the bucket of the place far",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(&format!("r.toml:{line}: ")), "{text}\n{error}");
            assert!(error.contains(part), "{error}");
        }
        parse(&with("directory = \"/mnt/colder\"")).unwrap();
        parse(&format!(
            "{FAR}{}",
            FAR.replace("far", "near").replace("/x/", "/y/")
        ))
        .unwrap();
    }

    #[test]
    fn copies_are_kept_as_rules_say() {
        let on = "[deduplication]\nenabled = true\n";
        let rule = "[[copies]]\nrepositories = \"team/**\"\nkeep = [\"files@cold\"]\npopular = { pulls = 2, within = \"1h\", keep = [\"intact@main\"] }\n";
        let config = parse(&format!("{on}{COLD}{rule}")).unwrap();
        assert_eq!(config.copies.of("team/app"), &wanted("files@cold"));
        assert_eq!(
            config.copies.popular("team/app").unwrap().wanted,
            wanted("intact@main files@cold")
        );
        assert_eq!(config.copies.of("other"), &wanted("files@main"));
        for (text, line, part) in [
            (
                format!("{COLD}{rule}"),
                4,
                "set enabled = true in [deduplication]",
            ),
            (
                format!(
                    "{COLD}{}",
                    rule.replace("files@", "intact@")
                        .replace("intact@main", "chunks@main")
                ),
                4,
                "keeps chunks@main",
            ),
            (format!("{on}{rule}"), 3, "names the place cold"),
            (format!("{on}{COLD}{rule}{rule}"), 10, "never counts"),
            (
                format!("{on}{COLD}{}", rule.replace("files", "parts")),
                8,
                "parts@cold",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(&format!("r.toml:{line}: ")), "{text}\n{error}");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn without_rules_there_is_one_copy_as_deduplication_says() {
        for (text, kept) in [
            ("", "intact@main"),
            ("chunks = \"contents\"", "intact@main"),
            ("enabled = true", "files@main"),
            ("enabled = true\nchunks = \"contents\"", "chunks@main"),
            ("enabled = true\nkeep_intact = true", "intact@main files@main"),
        ] {
            let config = parse(&format!("[deduplication]\n{text}")).unwrap();
            assert!(config.copies.is_empty());
            assert_eq!(config.copies.of("any"), &wanted(kept), "{text}");
        }
    }
}

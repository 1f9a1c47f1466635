//! Against files as users have them, and files made at random.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::containerd::{self, Unpack, Version};

const USERS: &str = "# mine\nversion = 3\n\n[plugins]\n  # about images\n  [plugins.'io.containerd.cri.v1.images']\n    \
     snapshotter = 'overlayfs' # as always\n    max_concurrent_downloads = 3\n";

fn wanted(document: &DocumentMut, version: Version) -> Vec<(Key, Wanted)> {
    let unpack = Unpack::of(document, version, None);
    containerd::keys(
        version,
        Path::new("/run/x.sock"),
        Path::new("/data"),
        true,
        unpack,
    )
}

/// Sets all keys; the text after that, and what was changed.
fn set_all(text: &str, keys: &[(Key, Wanted)]) -> Result<(String, Vec<Change>), KeyError> {
    let mut document: DocumentMut = text.parse().unwrap();
    let mut changes = Vec::new();
    for (key, value) in keys {
        changes.extend(set(&mut document, key, value)?);
    }
    Ok((document.to_string(), changes))
}

fn undo_all(text: &str, changes: &[Change]) -> String {
    let mut document: DocumentMut = text.parse().unwrap();
    for change in changes.iter().rev() {
        assert!(undo(&mut document, change), "{change}");
    }
    document.to_string()
}

fn look<'a>(table: &'a toml::Table, key: &[String]) -> Option<&'a toml::Value> {
    let (last, way) = key.split_last()?;
    let mut table = table;
    for name in way {
        table = table.get(name)?.as_table()?;
    }
    table.get(last)
}

/// As another parser sees it.
fn is_there(text: &str, key: &[String], wanted: &Wanted) -> bool {
    let table: toml::Table = toml::from_str(text).unwrap();
    let Some(value) = look(&table, key) else {
        return false;
    };
    let has = |value: &toml::Value, (name, text): &(String, String)| {
        value.get(name).and_then(toml::Value::as_str) == Some(text)
    };
    match wanted {
        Wanted::Text(text) => value.as_str() == Some(text),
        Wanted::Switch(switch) => value.as_bool() == Some(*switch),
        Wanted::Words(words) => {
            let found = value.as_array().unwrap().iter().map(toml::Value::as_str);
            found.eq(words.iter().map(|word| Some(&**word)))
        }
        Wanted::Among(fields) => value
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| fields.iter().all(|field| has(entry, field))),
    }
}

#[test]
fn a_users_comments_and_layout_stay() {
    let keys = wanted(&USERS.parse().unwrap(), Version::Three);
    let (text, changes) = set_all(USERS, &keys).unwrap();
    assert!(text.contains("# mine\n"), "{text}");
    assert!(
        text.contains("    snapshotter = \"xebec\" # as always\n"),
        "{text}"
    );
    assert!(text.contains("    max_concurrent_downloads = 3\n"), "{text}");
    assert!(
        text.contains("\n    disable_snapshot_annotations = false\n"),
        "{text}"
    );
    assert!(text.ends_with('\n'));
    assert_eq!(undo_all(&text, &changes), USERS);
}

#[test]
fn what_somebody_changed_since_is_left() {
    let keys = wanted(&USERS.parse().unwrap(), Version::Three);
    let (text, changes) = set_all(USERS, &keys).unwrap();
    let text = text.replace("snapshotter = \"xebec\" #", "snapshotter = \"other\" #");
    let mut document: DocumentMut = text.parse().unwrap();
    let left: Vec<String> = changes
        .iter()
        .rev()
        .filter(|change| !undo(&mut document, change))
        .map(|change| dotted(&change.key))
        .collect();
    assert_eq!(left, ["plugins.\"io.containerd.cri.v1.images\".snapshotter"]);
    assert!(document.to_string().contains("snapshotter = \"other\""));
}

#[test]
fn what_is_no_table_is_named_and_nothing_is_changed() {
    let error = set_all(
        "version = 3\nplugins = 7\n",
        &wanted(&DocumentMut::new(), Version::Three),
    )
    .unwrap_err();
    assert_eq!(error.key, "plugins");
    let text = "[plugins.\"io.containerd.transfer.v1.local\"]\nunpack_config = 1\n";
    let error = set_all(text, &wanted(&text.parse().unwrap(), Version::Three)).unwrap_err();
    assert!(error.to_string().contains("unpack_config is no list"), "{error}");
}

#[test]
fn versions_are_told_apart() {
    let of = |text: &str| Version::of(&text.parse().unwrap());
    assert_eq!(of("version = 2"), Ok(Version::Two));
    assert_eq!(of("version = 3"), Ok(Version::Three));
    assert!(of("root = \"/x\"").unwrap_err().contains("config migrate"));
    assert_eq!(of("version = 4"), Ok(Version::Three));
    assert!(of("version = 5").is_err());
}

/// A file with some of the tables and keys that matter, others beside them, and comments between.
fn file() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("'overlayfs'"),
        Just("\"xebec\""),
        Just("true"),
        Just("false"),
        Just("[1, 2] # two")
    ];
    let name = prop_oneof![
        Just("snapshotter"),
        Just("disable_snapshot_annotations"),
        Just("address"),
        Just("other"),
        Just("\"a.b\"")
    ];
    let keys = prop::collection::btree_map(name, (value, any::<bool>()), 0..4);
    let table = prop_oneof![
        Just("plugins"),
        Just("plugins.'io.containerd.cri.v1.images'"),
        Just("plugins.\"io.containerd.grpc.v1.cri\".containerd"),
        Just("plugins.\"io.containerd.transfer.v1.local\""),
        Just("proxy_plugins"),
        Just("proxy_plugins.xebec"),
        Just("proxy_plugins.stargz"),
        Just("metrics")
    ];
    let list = prop_oneof![
        Just(""),
        Just("unpack_config = []\n"),
        Just("unpack_config = [{ platform = \"linux\", snapshotter = \"overlayfs\" }] # mine\n"),
        Just("[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\nplatform = \"linux\"\n")
    ];
    (
        prop::collection::btree_map(table, (keys, any::<u8>()), 0..6),
        list,
    )
        .prop_map(|(tables, list)| {
            let mut text = "# first\nversion = 3\n".to_owned();
            for (name, (keys, layout)) in tables {
                if layout & 1 == 0 {
                    text.push_str("\n# before a table\n");
                }
                let indent = if layout & 2 == 0 { "  " } else { "" };
                text.push_str(&format!("[{name}]\n"));
                for (key, (value, has_comment)) in keys {
                    if has_comment {
                        text.push_str(&format!("{indent}# about it\n"));
                    }
                    text.push_str(&format!("{indent}{key} = {value}\n"));
                }
                if name.contains("transfer") {
                    text.push_str(list);
                }
            }
            text
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn setting_is_seen_is_idempotent_and_is_taken_back(text in file(), is_old in any::<bool>()) {
        let version = if is_old { Version::Two } else { Version::Three };
        let document: DocumentMut = text.parse().unwrap();
        let keys = wanted(&document, version);
        let Ok((new, changes)) = set_all(&text, &keys) else {
            // A list stands where one value is wanted.
            return Ok(());
        };
        for (key, value) in &keys {
            prop_assert!(is_there(&new, key, value), "{}\n{new}", dotted(key));
        }
        for line in text.lines().filter(|line| line.trim_start().starts_with('#')) {
            prop_assert!(new.contains(line), "{line} is lost\n{new}");
        }
        let again = wanted(&new.parse().unwrap(), version);
        let (same, none) = set_all(&new, &again).unwrap();
        prop_assert_eq!(&same, &new);
        prop_assert_eq!(none, vec![]);
        prop_assert_eq!(undo_all(&new, &changes), text);
    }
}

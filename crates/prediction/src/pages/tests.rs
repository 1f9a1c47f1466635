//! Images are made of entries, without blobs: the mapping reads indexes alone.

use std::collections::BTreeMap;

use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Entry, EntryKind, Extent, LayerIndex, Metadata};
use xebec_format::path::LayerPath;

use super::*;
use crate::files::Layer;

/// Contents by a number, of which the first gives how many pages there are: 1 to 4.
type Number = u8;

/// What an entry of a layer is.
#[derive(Clone, Debug)]
pub(crate) enum Is {
    File(Number),
    Link(&'static str),
    Gone,
    Opaque,
}

fn pages_in(number: Number) -> u64 {
    u64::from(number % 4) + 1
}

/// A layer of these entries, and its section of contents.
pub(crate) fn layer(name: u8, entries: &[(&str, Is)]) -> (LayerIndex, Vec<u8>) {
    let (mut at, mut contents, mut made) = (0, Vec::new(), Vec::new());
    for (path, is) in entries {
        let kind = match is {
            Is::File(number) => {
                let length = pages_in(*number) * 4096 - 1;
                let extent = Extent {
                    file_offset: 0,
                    data_offset: at,
                    length,
                };
                at += pages_in(*number) * 4096;
                contents.extend_from_slice(Digest::of(&[*number]).as_bytes());
                EntryKind::File {
                    size: length,
                    extents: vec![extent],
                }
            }
            Is::Link(target) => EntryKind::Hardlink {
                target: LayerPath::normalize(target.as_bytes()).unwrap(),
            },
            Is::Gone => EntryKind::Whiteout,
            Is::Opaque => EntryKind::Opaque,
        };
        made.push(Entry {
            path: LayerPath::normalize(path.as_bytes()).unwrap(),
            metadata: Metadata::default(),
            kind,
        });
    }
    let index = LayerIndex {
        layer: Digest::of(&[name]),
        layer_size: 0,
        diff_id: None,
        codec: Codec::Tar,
        plain_size: 0,
        data_size: at,
        entries: made,
        pieces: Vec::new(),
        spans: Vec::new(),
        windows: None,
        frame: None,
        contents: None,
    };
    (index, contents)
}

pub(crate) fn files(layers: &[(LayerIndex, Vec<u8>)]) -> Files {
    let layers: Vec<Layer<'_>> = layers
        .iter()
        .map(|(index, contents)| Layer { index, contents })
        .collect();
    Files::new(&layers).unwrap()
}

/// The page of a file by its path.
pub(crate) fn page(files: &Files, path: &str, number: u64) -> Page {
    files.page_of(files.at(path.as_bytes()).unwrap(), number).unwrap()
}

#[test]
fn files_that_stayed_moved_changed_or_went() {
    use Is::{File, Gone, Link, Opaque};
    let base = layer(
        0,
        &[
            ("bin/stays", File(7)),
            ("lib/goes", File(3)),
            ("etc/old/one", File(11)),
        ],
    );
    let old = files(&[
        base.clone(),
        layer(
            1,
            &[
                ("app/moves", File(15)),
                ("app/changes", File(2)),
                ("app/link", Link("bin/stays")),
            ],
        ),
    ]);
    let new = files(&[
        base,
        layer(
            2,
            &[
                ("lib/goes", Gone),
                ("etc/old", Opaque),
                ("etc/new", File(11)),
                ("other/moved", File(15)),
                ("app/changes", File(1)),
            ],
        ),
    ]);
    let all = [
        ("bin/stays", 3),
        ("lib/goes", 0),
        ("etc/old/one", 1),
        ("app/moves", 2),
        ("app/changes", 1),
        ("app/changes", 2),
    ];
    let all = all.map(|(path, number)| page(&old, path, number));
    let mapping = Mapping::new(&old, &new, all);
    let wanted = [
        Some(page(&new, "bin/stays", 3)),
        None,
        Some(page(&new, "etc/new", 1)),
        Some(page(&new, "other/moved", 2)),
        Some(page(&new, "app/changes", 1)),
        None,
    ];
    assert_eq!(all.map(|page| mapping.page(page)), wanted);
    assert_eq!(mapping.page((9, 0)), None);
    assert_eq!(mapping.page((0, u64::MAX)), None);
}

#[test]
fn a_copy_that_was_there_before_does_not_stand_for_a_file_that_changed() {
    use Is::{File, Gone};
    let old = files(&[layer(
        0,
        &[
            ("etc/a", File(3)),
            ("usr/a", File(3)),
            ("usr/b", File(7)),
            ("var/b", File(7)),
        ],
    )]);
    let new = files(&[
        layer(
            0,
            &[
                ("etc/a", File(3)),
                ("usr/a", File(3)),
                ("usr/b", File(7)),
                ("var/b", File(7)),
            ],
        ),
        layer(1, &[("etc/a", File(5)), ("var/b", Gone)]),
    ]);
    let (changed, copy) = (page(&old, "etc/a", 1), page(&old, "var/b", 2));
    let mapping = Mapping::new(&old, &new, [changed, copy]);
    assert_eq!(mapping.page(changed), Some(page(&new, "etc/a", 1)));
    assert_eq!(
        mapping.page(copy),
        Some(page(&new, "usr/b", 2)),
        "one of the copies is gone"
    );
}

#[test]
fn a_layer_that_stands_twice_and_one_without_digests() {
    let (index, _) = layer(0, &[("a", Is::File(3))]);
    let (other, contents) = layer(1, &[("b", Is::File(7))]);
    let twice = files(&[
        (index.clone(), Vec::new()),
        (other.clone(), contents.clone()),
        (index.clone(), Vec::new()),
    ]);
    let once = files(&[(other, contents), (index, Vec::new())]);
    assert_eq!(page(&twice, "a", 2), (0, 2), "where it stands first");
    let mapping = Mapping::new(&twice, &once, [(0, 2)]);
    assert_eq!(mapping.page((0, 2)), Some((1, 2)), "by its path alone");
}

const PATHS: [&str; 6] = ["a", "b", "d/a", "d/b", "d/e/a", "f"];

/// What a version has: contents by path.
type Version = BTreeMap<usize, Number>;

/// The same as two layers: the lower one has other contents, and files that the upper one takes away.
fn layers_of(version: &Version, lower: &Version) -> Files {
    let entry = |(place, number): (&usize, &Number)| (PATHS[*place], Is::File(*number));
    let below: Vec<_> = lower.iter().map(entry).collect();
    let gone = lower.keys().filter(|place| !version.contains_key(place));
    let mut above: Vec<_> = gone.map(|place| (PATHS[*place], Is::Gone)).collect();
    above.extend(
        version
            .iter()
            .filter(|(place, number)| lower.get(place) != Some(number))
            .map(entry),
    );
    files(&[layer(0, &below), layer(1, &above)])
}

/// What the module's page says, of contents by path. The order of paths is that of the tree.
fn model(old: &Version, new: &Version, file: usize, number: u64) -> Option<(usize, u64)> {
    let contents = old[&file];
    let places: Vec<usize> = new
        .iter()
        .filter(|(_, other)| **other == contents)
        .map(|(place, _)| *place)
        .collect();
    let moved = places.iter().find(|place| old.get(place) != Some(&contents));
    let stands = match new.get(&file) {
        Some(same) if *same == contents => file,
        _ if moved.is_some() => *moved?,
        Some(_) => file,
        None => *places.first()?,
    };
    (number < pages_in(new[&stands])).then_some((stands, number))
}

fn version() -> impl Strategy<Value = Version> {
    proptest::collection::btree_map(0..PATHS.len(), 0..6u8, 0..PATHS.len())
}

proptest! {
    #[test]
    fn as_a_model_of_paths_and_contents(old in version(), new in version(), below in version(), other in version()) {
        let (old_files, new_files) = (layers_of(&old, &below), layers_of(&new, &other));
        let all: Vec<(usize, u64)> = old
            .iter()
            .flat_map(|(place, contents)| (0..pages_in(*contents)).map(|number| (*place, number)))
            .collect();
        let pages: Vec<Page> = all.iter().map(|(place, number)| page(&old_files, PATHS[*place], *number)).collect();
        let mapping = Mapping::new(&old_files, &new_files, pages.iter().copied());
        for ((place, number), old_page) in all.into_iter().zip(pages) {
            let wanted = model(&old, &new, place, number);
            let wanted = wanted.map(|(place, number)| page(&new_files, PATHS[place], number));
            prop_assert_eq!(mapping.page(old_page), wanted, "{} of {}", number, PATHS[place]);
        }
    }
}

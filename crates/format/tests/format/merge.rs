//! Merging against cases written by hand, and against a real directory into which random layers are unpacked with
//! the rules of `docs/decisions/0004-merge-semantics.md`.

use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::image::{ImageTree, InodeKind};
use xebec_format::layer::{Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Xattr};
use xebec_format::merge::{MAX_IMPLIED, MAX_LAYERS, MAX_NODES, MergeError, merge};
use xebec_format::path::LayerPath;

use crate::support::unpack::{Unpacked, layers_of_small_names};

/// A layer with these entries and nothing else that merging looks at.
fn layer(entries: Vec<Entry>) -> LayerIndex {
    LayerIndex {
        layer: Digest::of(b"layer"),
        layer_size: 0,
        diff_id: None,
        codec: Codec::Tar,
        plain_size: 0,
        data_size: 0,
        entries,
        pieces: Vec::new(),
        spans: Vec::new(),
        windows: None,
        frame: None,
        contents: None,
    }
}

/// An entry from a line: `PATH/` is a directory, `PATH` a file, `PATH -> TARGET` a symbolic link, `PATH = TARGET` a
/// hard link, `-PATH` a whiteout, `~PATH` an opaque directory; the number after `@` is its time.
fn entry(line: &str) -> Entry {
    let (line, mtime) = match line.split_once(" @") {
        Some((line, mtime)) => (line, mtime.parse().unwrap()),
        None => (line, 7),
    };
    let path = |text: &str| LayerPath::normalize(text.as_bytes()).unwrap();
    let (at, kind) = if let Some(rest) = line.strip_prefix('-') {
        (rest, EntryKind::Whiteout)
    } else if let Some(rest) = line.strip_prefix('~') {
        (rest, EntryKind::Opaque)
    } else if let Some((at, target)) = line.split_once(" -> ") {
        (
            at,
            EntryKind::Symlink {
                target: target.into(),
            },
        )
    } else if let Some((at, target)) = line.split_once(" = ") {
        (at, EntryKind::Hardlink { target: path(target) })
    } else if line.ends_with('/') {
        (line, EntryKind::Directory)
    } else {
        let extents = vec![Extent {
            file_offset: 0,
            data_offset: 0,
            length: 1,
        }];
        (line, EntryKind::File { size: 1, extents })
    };
    let metadata = match kind {
        EntryKind::Whiteout | EntryKind::Opaque => Metadata::default(),
        _ => Metadata {
            mode: 0o644,
            mtime,
            ..Metadata::default()
        },
    };
    Entry {
        path: path(at),
        metadata,
        kind,
    }
}

fn merged(layers: &[&[&str]]) -> Result<ImageTree, MergeError> {
    let layers: Vec<LayerIndex> = layers
        .iter()
        .map(|lines| layer(lines.iter().map(|line| entry(line)).collect()))
        .collect();
    merge(&layers.iter().collect::<Vec<_>>())
}

/// One word for each path: `PATH/`, `PATH:LAYER` for a file, `PATH->TARGET`; `*N` for N links, `@T` for a time that
/// is not 7.
fn listing(tree: &ImageTree) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![(String::new(), tree.root)];
    while let Some((path, id)) = todo.pop() {
        let inode = tree.inode(id).unwrap();
        let mut word = path.clone();
        match &inode.kind {
            InodeKind::Directory { children } => {
                word += "/";
                let mut subdirectories = 0;
                for child in children {
                    let name = String::from_utf8(child.name.to_vec()).unwrap();
                    let below = if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    };
                    todo.push((below, child.inode));
                    let kind = &tree.inode(child.inode).unwrap().kind;
                    subdirectories += u32::from(matches!(kind, InodeKind::Directory { .. }));
                }
                assert_eq!(inode.links, 2 + subdirectories, "{path}");
            }
            InodeKind::File { extents, .. } => word += &format!(":{}", extents[0].device),
            InodeKind::Symlink { target } => word += &format!("->{}", String::from_utf8_lossy(target)),
            _ => {}
        }
        if inode.links > 1 && !word.ends_with('/') {
            word += &format!("*{}", inode.links);
        }
        if inode.metadata.mtime != 7 && !path.is_empty() {
            word += &format!("@{}", inode.metadata.mtime);
        }
        if !path.is_empty() {
            found.push(word);
        }
    }
    found.sort();
    found
}

fn check(layers: &[&[&str]], expected: &[&str]) {
    assert_eq!(listing(&merged(layers).unwrap()), expected, "{layers:?}");
}

#[test]
fn later_layers_win() {
    check(&[&["a", "b"], &["b", "c"]], &["a:0", "b:1", "c:1"]);
    check(&[&["a @1", "a @2"]], &["a:0@2"]);
    check(
        &[&["d/ @1", "d/x"], &["d/ @2", "d/y"]],
        &["d/@2", "d/x:0", "d/y:1"],
    );
    check(&[&["d/", "d/x"], &["d"]], &["d:1"]);
    check(&[&["d"], &["d/", "d/x"]], &["d/", "d/x:1"]);
    check(&[&["d/", "d/x"], &["d -> e"]], &["d->e"]);
}

#[test]
fn missing_parents_are_made() {
    check(&[&["a/b/c"]], &["a/@0", "a/b/@0", "a/b/c:0"]);
    check(&[&["a/b/c", "a/ @5"]], &["a/@5", "a/b/@0", "a/b/c:0"]);
    check(&[&[], &["-a/b"]], &["a/@0"]);
}

#[test]
fn whiteouts_remove_what_lower_layers_brought() {
    check(&[&["a", "d/", "d/x"], &["-a", "-d"]], &[]);
    check(&[&["a"], &["-a", "a"]], &["a:1"]);
    // containerd does otherwise: it would remove the layer's own file.
    check(&[&["a"], &["a", "-a"]], &["a:1"]);
    check(&[&["d/ @1", "d/x"], &["d/y", "-d"]], &["d/@1", "d/y:1"]);
    check(&[&["d/ @1", "d/x"], &["-d", "d/y"]], &["d/@0", "d/y:1"]);
    check(&[&["a"], &["-b"]], &["a:0"]);
}

#[test]
fn opaque_directories_hide_what_is_below_in_any_order() {
    let lower: &[&str] = &["d/", "d/x", "d/e/", "d/e/z"];
    check(&[lower, &["d/", "~d", "d/y"]], &["d/", "d/y:1"]);
    check(&[lower, &["d/", "d/y", "~d"]], &["d/", "d/y:1"]);
    check(&[lower, &["d/e/new", "~d"]], &["d/", "d/e/", "d/e/new:1"]);
    check(&[lower, &["~"]], &[]);
    check(&[lower, &["d/e/", "~d", "~d/e", "-d/e/z"]], &["d/", "d/e/"]);
    check(&[lower, &["~d"], &["d/x"]], &["d/", "d/x:2"]);
}

#[test]
fn parents_that_are_links_lead_inside_the_root() {
    check(
        &[&["usr/", "usr/lib/", "lib -> usr/lib"], &["lib/x"]],
        &["lib->usr/lib", "usr/", "usr/lib/", "usr/lib/x:1"],
    );
    check(
        &[&["l -> /a/b", "l/x"]],
        &["a/@0", "a/b/@0", "a/b/x:0", "l->/a/b"],
    );
    check(
        &[&["l -> ../../../a", "l/x"]],
        &["a/@0", "a/x:0", "l->../../../a"],
    );
    check(
        &[&["a/", "a/l -> ../b", "a/l/x"]],
        &["a/", "a/l->../b", "b/@0", "b/x:0"],
    );
    check(&[&["d/", "d/x", "l -> d"], &["-l/x"]], &["d/", "l->d"]);
    check(&[&["d/", "d/x", "l -> d"], &["~l"]], &["d/", "l->d"]);
    check(&[&["d/", "d/x", "l -> d"], &["l/"]], &["d/", "d/x:0", "l/"]);
}

#[test]
fn hard_links_share_an_inode() {
    check(&[&["a", "b = a"]], &["a:0*2", "b:0*2"]);
    check(&[&["a"], &["b = a @9"]], &["a:0*2@9", "b:0*2@9"]);
    check(&[&["a", "b = a"], &["a"]], &["a:1", "b:0"]);
    check(&[&["a", "b = a"], &["-a"]], &["b:0"]);
    check(&[&["s -> a", "t = s"]], &["s->a*2", "t->a*2"]);
    check(
        &[&["d/", "d/a", "l -> d"], &["b = l/a"]],
        &["b:0*2", "d/", "d/a:0*2", "l->d"],
    );
    check(&[&["a", "b = a"], &["b = a"]], &["a:0*2", "b:0*2"]);
}

#[test]
fn the_root_has_what_its_last_entry_says() {
    let root = |layers: &[&[&str]]| {
        let tree = merged(layers).unwrap();
        let root = tree.inode(tree.root).unwrap();
        (root.metadata.mode, root.metadata.mtime, listing(&tree).len())
    };
    assert_eq!(root(&[&["a"]]), (0o755, 0, 1), "as if it were made for `a`");
    assert_eq!(root(&[&["/ @3", "a"]]), (0o644, 3, 1));
    assert_eq!(root(&[&["/ @3", "a"], &["b", "/ @5"]]), (0o644, 5, 2));
    assert_eq!(root(&[&["/ @3", "a"], &["~/", "b"]]), (0o644, 3, 1));
    for line in ["-/", ".", "/ -> a", "/ = a"] {
        let refused = merged(&[&["a"], &[line]]).unwrap_err();
        assert_eq!(refused, MergeError::RootReplaced(Digest::of(b"layer")), "{line}");
    }
}

#[test]
fn what_cannot_be_is_named() {
    let missing = merged(&[&["b = a"]]).unwrap_err().to_string();
    assert!(missing.contains("/b is a hard link to /a"), "{missing}");
    let itself = merged(&[&["a", "a = a"]]).unwrap_err();
    assert!(matches!(itself, MergeError::HardlinkTargetMissing { .. }));
    let directory = merged(&[&["d/", "b = d"]]).unwrap_err();
    assert!(matches!(directory, MergeError::HardlinkToDirectory { .. }));
    let looping = merged(&[&["a -> b", "b -> a", "a/x"]]).unwrap_err();
    assert!(matches!(looping, MergeError::SymlinkLoop { .. }));
    let below_file = merged(&[&["a", "a/b"]]).unwrap_err().to_string();
    assert!(
        below_file.contains("/a/b is below \"a\", which is not a directory"),
        "{below_file}"
    );
    assert!(matches!(
        merged(&[&["~a", "a", "~a"]]).unwrap_err(),
        MergeError::ParentNotDirectory { .. }
    ));
}

#[test]
fn as_many_layers_as_there_are_devices() {
    let empty = layer(Vec::new());
    let layers = vec![&empty; MAX_LAYERS + 1];
    assert!(merge(&layers[1..]).is_ok());
    assert_eq!(merge(&layers), Err(MergeError::TooManyLayers(MAX_LAYERS + 1)));
}

/// All of them count, also those that the next layer replaces.
#[test]
fn as_many_nodes_as_there_is_memory_for() {
    let files = |count: usize| {
        let names = (0..count).map(|number| entry(&number.to_string()));
        layer(names.collect())
    };
    // The root is a node, too.
    let (whole, rest) = ((MAX_NODES - 1) / 1000, (MAX_NODES - 1) % 1000);
    let (lower, last, too_many) = (files(1000), files(rest), files(rest + 1));
    let mut layers = vec![&lower; whole];
    layers.push(&last);
    assert!(merge(&layers).is_ok());
    layers[whole] = &too_many;
    assert_eq!(merge(&layers), Err(MergeError::TooManyNodes));
}

#[test]
fn as_many_implied_directories_as_honest_archives_have() {
    let deep = "d/".repeat(8191);
    let lines: Vec<String> = (0..MAX_IMPLIED / 8192)
        .map(|number| format!("{number}/{deep}x"))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert!(merged(&[&lines]).is_ok());
    let refused = merged(&[&lines, &["one/more"]]);
    assert_eq!(refused, Err(MergeError::TooManyImplied));
    // Directories that a layer describes are not implied.
    assert!(merged(&[&lines, &["one/", "one/more"]]).is_ok());
}

#[test]
fn a_path_leads_through_255_links_and_not_through_256() {
    let chain = |links: usize| {
        let mut lines = vec!["d/".to_owned(), "l1 -> d".to_owned()];
        lines.extend((2..=links).map(|number| format!("l{number} -> l{}", number - 1)));
        lines.push(format!("l{links}/x"));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        merged(&[&lines])
    };
    assert!(listing(&chain(255).unwrap()).contains(&"d/x:0".to_owned()));
    assert!(matches!(chain(256), Err(MergeError::SymlinkLoop { .. })));
}

#[test]
fn a_maze_of_links_ends() {
    // Each link leads through many more: the limit on links of one path ends it.
    let mut lines = vec!["l0 -> .".to_string()];
    for n in 1..200 {
        let before = vec![format!("l{}", n - 1); 500].join("/");
        lines.push(format!("l{n} -> {before}"));
    }
    lines.push("l199/x".to_string());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert!(matches!(
        merged(&[&lines]).unwrap_err(),
        MergeError::SymlinkLoop { .. }
    ));
}

#[test]
fn links_with_long_targets_have_a_budget() {
    let target = "d/../".repeat(800);
    let mut lines = vec![
        "d/".to_string(),
        format!("l -> {target}"),
        format!("m -> {target}"),
    ];
    // Alternating, so that remembering the last directory does not help.
    for n in 0..50_000 {
        lines.push(format!("l/{n}"));
        lines.push(format!("m/{n}"));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert!(matches!(
        merged(&[&lines]).unwrap_err(),
        MergeError::TooMuchWork(_)
    ));
}

#[test]
fn clearing_again_and_again_costs_nothing() {
    let files: Vec<String> = (0..20_000).map(|n| format!("d/{n}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut upper = files.clone();
    upper.extend(std::iter::repeat_n("~d", 20_000));
    let start = std::time::Instant::now();
    merged(&[&files, &upper]).unwrap();
    // Quadratic work would take minutes.
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn a_deep_tree_needs_no_deep_stack() {
    let deep = "d/".repeat(30_000);
    check_depth(&merged(&[&[&deep]]).unwrap(), 30_000);
    check_depth(&merged(&[&[&deep], &["~"]]).unwrap(), 0);
}

fn check_depth(tree: &ImageTree, depth: usize) {
    assert_eq!(tree.inodes.len(), depth + 1);
}

#[test]
fn attributes_are_those_that_linux_would_have_stored() {
    let with = |line: &str, names: &[&str]| {
        let mut entry = entry(line);
        let xattr = |name: &&str| Xattr {
            name: name.as_bytes().to_vec(),
            value: name.as_bytes().to_vec(),
        };
        entry.metadata.xattrs = names.iter().map(xattr).collect();
        entry
    };
    let all = [
        "security.capability",
        "system.nfs4_acl",
        "system.posix_acl_access",
        "system.posix_acl_default",
        "trusted.overlay.opaque",
        "trusted.overlay.overlay.redirect",
        "trusted.x",
        "user.x",
    ];
    let layers = [
        layer(vec![
            with("d/", &all),
            with("f", &all),
            with("s -> f", &all),
            with("g", &["user.a", "user.b"]),
        ]),
        layer(vec![
            with("h = g", &["user.b", "user.c"]),
            with("d/", &["user.y"]),
        ]),
    ];
    let names = |tree: &ImageTree, name: &str| -> Vec<String> {
        let InodeKind::Directory { children } = &tree.inode(tree.root).unwrap().kind else {
            panic!()
        };
        let child = children
            .iter()
            .find(|child| &*child.name == name.as_bytes())
            .unwrap();
        let xattrs = &tree.inode(child.inode).unwrap().metadata.xattrs;
        xattrs
            .iter()
            .map(|x| String::from_utf8(x.name.clone()).unwrap())
            .collect()
    };
    let lower = merge(&[&layers[0]]).unwrap();
    let escaped = [
        "trusted.overlay.overlay.opaque",
        "trusted.overlay.overlay.overlay.redirect",
        "trusted.x",
    ];
    let acl = ["system.posix_acl_access", "system.posix_acl_default"];
    assert_eq!(
        names(&lower, "d"),
        [&["security.capability"], &acl[..], &escaped[..], &["user.x"]].concat()
    );
    assert_eq!(
        names(&lower, "f"),
        [&["security.capability"], &acl[..1], &escaped[..], &["user.x"]].concat()
    );
    assert_eq!(
        names(&lower, "s"),
        [&["security.capability"], &escaped[..]].concat()
    );
    let both = merge(&[&layers[0], &layers[1]]).unwrap();
    assert_eq!(names(&both, "g"), ["user.a", "user.b", "user.c"]);
    assert_eq!(names(&both, "d"), ["user.y"]);
}

proptest! {
    #[test]
    fn merging_is_unpacking(layers in layers_of_small_names()) {
        let layers: Vec<LayerIndex> = layers.into_iter().map(layer).collect();
        let unpacked = Unpacked::new(&layers);
        match (merge(&layers.iter().collect::<Vec<_>>()), unpacked) {
            (Ok(tree), Ok(unpacked)) => unpacked.assert_shows(&tree),
            (Err(_), Err(_)) => {}
            (merged, unpacked) => panic!("{merged:?}\nbut unpacking: {:?}", unpacked.err()),
        }
    }
}

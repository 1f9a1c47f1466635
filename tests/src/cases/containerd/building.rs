//! Building on a lazy image: the same changes, on it and on the same image in containerd's own overlayfs snapshotter, make
//! the same layer and the same tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FileType, XattrFlags, setxattr};
use xebec_format::digest::Digest;

use super::lazy::{pull, push_indexed};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::runner::Outcome;
use crate::tree::{self, Tree};
use crate::world::{World, run};

/// The changes in a container. All files that they need are in the image.
const CHANGES: &str = r#"
set -e
rm /etc/os-release                                        # a file
rm -r /usr/share/doc                                      # a directory
rm -r /etc/nginx && mkdir /etc/nginx && echo a >/etc/nginx/a && mkdir /etc/nginx/conf.d     # opaque, and below it
rm -r /usr/share/perl5 && echo file >/usr/share/perl5     # a directory by a file
rm /etc/passwd && mkdir /etc/passwd && echo in >/etc/passwd/in                              # a file by a directory
rm /etc/shadow && ln -s passwd /etc/shadow                # a file by a link
mv /etc/group /etc/group.moved                            # a file, moved
mv /etc/apt /etc/apt.moved                                # a directory, moved (copied)
mkdir /made && echo one >/made/one && ln /made/one /made/two && ln -s ../made/one /made/symlink
mkfifo /made/fifo
ln /usr/bin/tar /made/tar                                 # one more name for a file of the image
echo more >>/etc/hosts.new && echo more >>/etc/bash.bashrc
: >/etc/profile                                           # emptied
chmod 4711 /usr/bin/gzip && chown 33:33 /usr/bin/find
chmod 700 /usr/lib && chown 7:8 /srv
chmod 1777 /made
printf 'no newline' >"/made/a name with blanks"
rm /usr/bin/sort && cp /usr/bin/head /usr/bin/sort        # another file by that name
mkdir /made/empty /made/gone && rmdir /made/gone
"#;

/// A capability as a file has it: `cap_net_bind_service=ep` (`struct vfs_cap_data`, version 2).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The result of the changes.
struct Built {
    /// The layer's entries as tar lists them, without times.
    listed: Vec<String>,
    /// The contents of all its files, one after the other.
    contents: Digest,
    /// The tree of what was committed, without times.
    tree: Tree,
}

fn build(world: &World, containerd: &Containerd<'_>, reference: &str, snapshotter: &str) -> Result<Built> {
    let name = format!("on-{snapshotter}");
    let of = format!("--snapshotter={snapshotter}");
    let waits = ["run", "--detach", &of, reference, &name, "sleep", "600"];
    containerd.does(&waits)?;
    containerd.does(&["tasks", "exec", "--exec-id=x", &name, "sh", "-c", CHANGES])?;
    let root = containerd.root_of(&name);
    let attributes: [(&str, &str, &[u8]); 4] = [
        ("usr/bin/env", "security.capability", &CAPABILITY),
        ("made/one", "user.own", b"value"),
        ("usr/bin/perl", "trusted.own", b"\0\xff"),
        ("var", "user.of-a-directory", b""),
    ];
    for (path, attribute, value) in attributes {
        setxattr(root.join(path), attribute, value, XattrFlags::empty())
            .with_context(|| format!("{attribute} of {path}"))?;
    }
    containerd.end(&name)?;

    let layer = world.path(&format!("{name}.tar.gz"));
    let diff = containerd.ctr(&["snapshots", &of, "diff", &name])?.output()?;
    ensure!(diff.status.success(), "{diff:?}");
    fs::write(&layer, &diff.stdout)?;
    let tar = |options: &[&str]| {
        let mut tar = Command::new("tar");
        run(tar.args(options).arg("--file").arg(&layer))
    };
    let listed = tar(&[
        "--list",
        "-vv",
        "--numeric-owner",
        "--xattrs",
        "--xattrs-include=*",
        "--gzip",
    ])?;
    let contents = tar(&["--extract", "--to-stdout", "--gzip"])?;

    containerd.does(&["snapshots", &of, "commit", &format!("{name}-saved"), &name])?;
    containerd.does(&["containers", "rm", &name])?;
    let place = mount(world, containerd, &of, &name)?;
    let mut tree = tree::read(&place)?;
    run(Command::new("umount").arg(&place))?;
    for node in tree.nodes.values_mut() {
        node.modified = (0, 0);
        // overlayfs does not count the directories in a directory.
        if FileType::from_raw_mode(node.mode) == FileType::Directory {
            node.links = 0;
        }
    }
    for left in [format!("{name}-check"), format!("{name}-saved")] {
        containerd.does(&["snapshots", &of, "rm", &left])?;
    }
    Ok(Built {
        listed: without_times(&String::from_utf8_lossy(&listed.stdout)),
        contents: Digest::of(&contents.stdout),
        tree,
    })
}

/// Mounts what was committed.
fn mount(world: &World, containerd: &Containerd<'_>, of: &str, name: &str) -> Result<PathBuf> {
    let (check, saved) = (format!("{name}-check"), format!("{name}-saved"));
    containerd.view(&[of], &check, &saved)?;
    let place = world.path(&check);
    fs::create_dir(&place)?;
    let mount = containerd.does(&["snapshots", of, "mounts", &place.to_string_lossy(), &check])?;
    run(Command::new("sh").args(["-c", &mount]))?;
    Ok(place)
}

/// Lines of `tar -tvv` without date and time, which come fourth and fifth.
fn without_times(listed: &str) -> Vec<String> {
    let lines = listed.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match line.starts_with(' ') {
            // An extended attribute.
            true => words.join(" "),
            false => [words.get(..3), words.get(5..)]
                .into_iter()
                .flatten()
                .flatten()
                .copied()
                .collect::<Vec<_>>()
                .join(" "),
        }
    });
    lines.collect()
}

/// The entries that one has and the other has not.
fn only_in<'a>(one: &'a [String], other: &[String]) -> Vec<&'a String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in other {
        *counts.entry(line).or_default() += 1;
    }
    let mut new = Vec::new();
    for line in one {
        match counts.get_mut(line.as_str()).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => new.push(line),
        }
    }
    new
}

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    let ours = build(world, &containerd, &reference, "xebec")?;
    let all = [
        "images",
        "pull",
        "--plain-http",
        "--snapshotter=overlayfs",
        &reference,
    ];
    containerd.does(&all)?;
    let theirs = build(world, &containerd, &reference, "overlayfs")?;

    let (more, less) = (
        only_in(&ours.listed, &theirs.listed),
        only_in(&theirs.listed, &ours.listed),
    );
    ensure!(
        more.is_empty() && less.is_empty(),
        "only on a lazy image: {more:#?}\nonly on overlayfs: {less:#?}"
    );
    ensure!(ours.contents == theirs.contents, "the files of the layers differ");
    let names = ours.tree.nodes.keys().chain(theirs.tree.nodes.keys());
    let differs = names
        .filter(|name| ours.tree.nodes.get(*name) != theirs.tree.nodes.get(*name))
        .map(|name| {
            let name_text = String::from_utf8_lossy(name).into_owned();
            let (one, other) = (ours.tree.nodes.get(name), theirs.tree.nodes.get(name));
            format!("{name_text}: {one:?} and {other:?}")
        });
    let differs: Vec<String> = differs.take(5).collect();
    ensure!(differs.is_empty(), "{differs:#?}");

    containerd.does(&["images", "rm", "--sync", &reference])?;
    containerd.collect()?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{} entries of a layer, {} names of what was committed",
        ours.listed.len(),
        ours.tree.nodes.len()
    )))
}

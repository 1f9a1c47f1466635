//! From the pages of an earlier version's files to the pages of a new version's files.
//!
//! The file that stands for a file of the earlier version is, in this order:
//!
//! 1. the one at the same path, if its contents are the same;
//! 2. one with the same contents at a path that had not these contents before: the file was moved;
//! 3. the one at the same path, with other contents: it is read at the same places, as far as it reaches;
//! 4. one with the same contents at any path: one of several copies is gone.
//!
//! If there is none, the pages are left out.

use std::collections::{HashMap, HashSet};

use xebec_format::image::InodeId;

use crate::files::{Contents, Files, Page, Run};

/// Bytes of all paths of files that are looked up. Files beyond are found by their contents alone.
const MOST_PATHS: usize = 16 << 20;
/// So many names of a file with several are looked up.
const MOST_NAMES: usize = 8;

/// The pages of a new version that stand for those of an earlier one.
#[derive(Debug)]
pub struct Mapping<'a> {
    new: &'a Files,
    /// The contents of the earlier version's files.
    runs: Vec<Run>,
    /// Which file stands for a file.
    files: HashMap<InodeId, InodeId>,
}

impl<'a> Mapping<'a> {
    /// Finds the files to which `pages` of the earlier version belong, and those that stand for them.
    pub fn new(old: &Files, new: &'a Files, pages: impl IntoIterator<Item = Page>) -> Self {
        let runs = old.runs();
        let touched: HashSet<InodeId> = pages
            .into_iter()
            .filter_map(|page| Some(run_of(&runs, page)?.inode))
            .collect();
        let paths = paths(old, &touched);
        let moved = Moved::find(old, new, touched.iter().filter_map(|file| old.contents(*file)));
        let files = touched.iter().filter_map(|file| {
            let names = paths.get(file).map(Vec::as_slice).unwrap_or_default();
            Some((*file, stand_in(old, new, *file, names, &moved)?))
        });
        let files = files.collect();
        Self { new, runs, files }
    }

    /// The page that stands for a page of the earlier version.
    pub fn page(&self, page: Page) -> Option<Page> {
        let run = run_of(&self.runs, page)?;
        let file = self.files.get(&run.inode)?;
        self.new.page_of(*file, run.in_file + (page.1 - run.first.1))
    }
}

fn run_of(runs: &[Run], page: Page) -> Option<&Run> {
    let after = runs.partition_point(|run| run.first <= page);
    let run = runs.get(after.checked_sub(1)?)?;
    (run.first.0 == page.0 && page.1 - run.first.1 < run.pages).then_some(run)
}

/// The names of files, in the order of the tree.
fn paths(files: &Files, wanted: &HashSet<InodeId>) -> HashMap<InodeId, Vec<Vec<u8>>> {
    let (mut paths, mut bytes): (HashMap<InodeId, Vec<Vec<u8>>>, usize) = (HashMap::new(), 0);
    files.walk(|path, id| {
        if !wanted.contains(&id) || bytes + path.len() > MOST_PATHS {
            return;
        }
        let names = paths.entry(id).or_default();
        if names.len() < MOST_NAMES {
            bytes += path.len();
            names.push(path.to_vec());
        }
    });
    paths
}

/// The file of the new version that stands for a file; see the module.
fn stand_in(old: &Files, new: &Files, file: InodeId, names: &[Vec<u8>], moved: &Moved) -> Option<InodeId> {
    let contents = old.contents(file);
    let here: Vec<InodeId> = names.iter().filter_map(|path| new.at(path)).collect();
    let same = here
        .iter()
        .find(|id| contents.is_some() && new.contents(**id) == contents);
    if let Some(same) = same {
        return Some(*same);
    }
    let elsewhere = contents.and_then(|contents| moved.0.get(&contents));
    let changed = here.into_iter().find(|id| !new.extents(*id).is_empty());
    match elsewhere {
        Some(place) if place.is_new => Some(place.inode),
        _ => changed.or(elsewhere.map(|place| place.inode)),
    }
}

/// A place of contents in the new version.
#[derive(Clone, Copy, Debug)]
struct Place {
    inode: InodeId,
    /// The earlier version had not these contents at this path.
    is_new: bool,
}

/// Where the new version has contents of the earlier one: the first place that is new, or the first place.
#[derive(Debug)]
struct Moved(HashMap<Contents, Place>);

impl Moved {
    fn find(old: &Files, new: &Files, wanted: impl Iterator<Item = Contents>) -> Self {
        let wanted: HashSet<Contents> = wanted.collect();
        let mut places: HashMap<Contents, Place> = HashMap::new();
        new.walk(|path, inode| {
            let contents = new.contents(inode).filter(|contents| wanted.contains(contents));
            let Some(contents) =
                contents.filter(|contents| !places.get(contents).is_some_and(|place| place.is_new))
            else {
                return;
            };
            let before = old.at(path).and_then(|before| old.contents(before));
            let is_new = before != Some(contents);
            if is_new || !places.contains_key(&contents) {
                places.insert(contents, Place { inode, is_new });
            }
        });
        Self(places)
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! Which repositories a directory has.

use xebec_settings::pattern::RepositoryPattern;
use xebec_store::RepositoryName;

use super::layout;
use super::source::{Source, said};
use crate::tally::Tally;

/// The directories of a repository itself. No name of a repository has a part that begins like these.
const MANIFESTS: &str = "_manifests";
const LAYERS: &str = "_layers";

/// The repositories that one of the patterns covers, in the order of their names. A directory that is no repository is skipped, and
/// named.
pub(super) fn repositories(
    source: &Source,
    patterns: &[RepositoryPattern],
    tally: &Tally,
) -> Vec<RepositoryName> {
    let mut found = Vec::new();
    // Names whose directories are still to be looked into; the first is that of all.
    let mut waiting = vec![String::new()];
    while let Some(name) = waiting.pop() {
        let path = layout::repository(&name);
        let names = match source.list(&path) {
            Ok(names) => names,
            Err(error) => {
                tally.skip(&name, source.shown(&path), said(&error));
                continue;
            }
        };
        let is_repository = names.iter().any(|name| name == MANIFESTS || name == LAYERS);
        if let Ok(name) = name.parse::<RepositoryName>()
            && is_repository
            && is_wanted(&name, patterns)
        {
            found.push(name);
        }
        let below = names.into_iter().filter(|part| !part.starts_with('_'));
        let below = below.map(|part| match name.is_empty() {
            true => part,
            false => format!("{name}/{part}"),
        });
        waiting.extend(below.filter(|name| may_hold_more(source, name, tally)));
    }
    found.sort_unstable();
    found
}

/// Whether a name leads to a directory in which repositories may be.
fn may_hold_more(source: &Source, name: &str, tally: &Tally) -> bool {
    let path = layout::repository(name);
    // The check that found it missing was right a moment ago. A directory that is there now is no repository's.
    match source.is_directory(&path) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(error) => {
            tally.skip("", source.shown(&path), said(&error));
            return false;
        }
    }
    match name.parse::<RepositoryName>() {
        Ok(_) => true,
        Err(error) => {
            tally.skip("", source.shown(&path), error.to_string());
            false
        }
    }
}

fn is_wanted(name: &RepositoryName, patterns: &[RepositoryPattern]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.covers(name.as_str()))
}

//! Files that containerd's configuration imports. Their keys win over its own, so a key that one of them sets otherwise would make an
//! installation that has no effect.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use toml_edit::DocumentMut;
use xebec_protocol::failure::{Failure, FailureKind};

use crate::Options;
use crate::containerd::{self, Unpack, Version};
use crate::keys::{contradicts, dotted};

/// Most files that are followed; a host has a handful.
const MOST_FILES: usize = 256;

/// Refuses when a file that `config` imports, at any remove, sets one of Xebec's keys to something else.
///
/// # Errors
/// That; and a file that cannot be read.
pub(crate) fn check(
    options: &Options,
    config: &Path,
    document: &DocumentMut,
    version: Version,
    socket: &Path,
) -> Result<(), Failure> {
    let mut pending = imports(options, config, document);
    let mut seen = BTreeSet::from([config.to_owned()]);
    while let Some(file) = pending.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        if seen.len() > MOST_FILES {
            let message = format!(
                "{} imports more than {MOST_FILES} files; name one that imports fewer",
                config.display()
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let (_, document) = options.read_toml(&file)?;
        let version = Version::of(&document).unwrap_or(version);
        for (key, wanted) in containerd::keys(
            version,
            socket,
            &options.root,
            options.is_default,
            Unpack::Unknown,
        ) {
            if let Some(said) = contradicts(&document, &key, &wanted) {
                let message = format!(
                    "{}, which {} imports, sets {} to {said}, and wins over what would be set there: remove that key, or make it \
                     {wanted}",
                    file.display(),
                    config.display(),
                    dotted(&key)
                );
                return Err(Failure::new(FailureKind::Usage, message));
            }
        }
        pending.extend(imports(options, &file, &document));
    }
    Ok(())
}

/// The files that one imports, as the host sees them (`resolveImports` in `cmd/containerd/server/config/config.go`).
fn imports(options: &Options, file: &Path, document: &DocumentMut) -> Vec<PathBuf> {
    let list = document.get("imports").and_then(|item| item.as_array());
    let patterns = list.into_iter().flatten().filter_map(|value| value.as_str());
    let beside = file.parent().unwrap_or(Path::new("/"));
    patterns
        .flat_map(|pattern| expand(options, &beside.join(pattern)))
        .collect()
}

/// The paths that a pattern stands for. One without a wildcard stands for itself.
fn expand(options: &Options, pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let part = component.as_os_str().to_string_lossy();
        match component {
            Component::Normal(_) if part.contains(['*', '?']) => {}
            // By the name, as containerd takes it.
            Component::ParentDir => {
                found.iter_mut().for_each(|path| {
                    path.pop();
                });
                continue;
            }
            _ => {
                found.iter_mut().for_each(|path| path.push(component));
                continue;
            }
        }
        found = found
            .iter()
            .flat_map(|directory| {
                let names = std::fs::read_dir(options.here(directory))
                    .into_iter()
                    .flatten()
                    .flatten();
                let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let mut matching: Vec<String> = names
                    .filter(|name| matches(part.as_bytes(), name.as_bytes()))
                    .collect();
                matching.sort();
                matching.into_iter().map(|name| directory.join(name))
            })
            .take(MOST_FILES + 1)
            .collect();
    }
    found
}

/// Whether a name fits a pattern of `*` and `?`, in time that grows with the product of their lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Where the last star is, and how much of the name it takes.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || name.get(in_name) == Some(wanted) => {
                at += 1;
                in_name += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, in_name) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(at..)
        .is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml.bak", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?.toml", "a.toml", true),
            ("?.toml", "ab.toml", false),
            ("**", "", true),
            ("", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                fits,
                "{pattern} {name}"
            );
        }
    }
}

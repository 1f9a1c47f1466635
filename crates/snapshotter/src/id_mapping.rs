//! User namespaces: which ids on a disk stand for which ids of a container.
//!
//! A client that wants a container's files mapped says so by two labels, as containerd's CRI and `ctr run --remap-labels`
//! do. The directories below the container are then mounted with the mapping, which containerd does when it finds the options `uidmap=`
//! and `gidmap=`; what the container writes has the mapped owners on disk.
//!
//! containerd only leaves this to a snapshotter whose configuration says `capabilities = ["remap-ids"]`. Otherwise it makes a copy of
//! the image first, with other owners, and asks for the container on that one, with the same labels ([`is_copy`]): ids that are mapped
//! already must not be mapped again.

use std::collections::HashMap;

use crate::error::SnapshotError;

/// The labels, with user ids and with group ids. containerd's names.
pub(crate) const LABELS: [&str; 2] = [
    "containerd.io/snapshot/uidmapping",
    "containerd.io/snapshot/gidmapping",
];
/// Most ranges that the kernel takes for one namespace (`user_namespaces(7)`).
const MOST_RANGES: usize = 340;
/// How containerd calls the copy while it is made: the name that it gets, and this.
const COPY: &str = "-remap";

/// A mapping, as it was checked. Kept with its snapshot.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct IdMapping {
    /// `CONTAINER:HOST:COUNT`, one or more with commas between: user ids.
    #[prost(string, tag = "1")]
    pub users: String,
    /// The same of group ids.
    #[prost(string, tag = "2")]
    pub groups: String,
}

/// As many ids from `inside` on, in the container, are those from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    inside: u32,
    outside: u32,
    count: u32,
}

impl IdMapping {
    /// The mapping that labels ask for, if they do.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for one that no namespace could have, or in which root is nobody.
    pub fn of(labels: &HashMap<String, String>) -> Result<Option<IdMapping>, SnapshotError> {
        let [users, groups] = LABELS.map(|label| labels.get(label).filter(|text| !text.is_empty()));
        let (users, groups) = match (users, groups) {
            (None, None) => return Ok(None),
            (Some(users), Some(groups)) => (users.clone(), groups.clone()),
            _ => {
                let [users, groups] = LABELS;
                let message = format!("ids are mapped by {users} and {groups}, and one of them is missing");
                return Err(SnapshotError::invalid(message));
            }
        };
        for (label, text) in LABELS.iter().zip([&users, &groups]) {
            let wrong = |what: String| SnapshotError::invalid(format!("the label {label}: {what}"));
            let ranges = ranges(text).map_err(wrong)?;
            if find(&ranges, 0).is_none() {
                return Err(wrong(format!("{text:?} maps root to nobody")));
            }
        }
        Ok(Some(IdMapping { users, groups }))
    }

    /// The ids on this host of a user and a group of the image; root's if they have none.
    pub fn owner(&self, user: u32, group: u32) -> (u32, u32) {
        let mapped = |text: &str, id: u32| {
            // It was read before.
            let ranges = ranges(text).unwrap_or_default();
            find(&ranges, id).or_else(|| find(&ranges, 0)).unwrap_or(id)
        };
        (mapped(&self.users, user), mapped(&self.groups, group))
    }

    /// The mount options by which containerd learns the mapping.
    pub fn options(&self) -> [String; 2] {
        [
            format!("uidmap={}", self.users),
            format!("gidmap={}", self.groups),
        ]
    }
}

/// Whether a snapshot that is committed is containerd's own copy of an image with other owners. Keys and names end with
/// what the client called them.
pub(crate) fn is_copy(key: &str, name: &str) -> bool {
    let own = |whole: &str| whole.rsplit('/').next().unwrap_or_default().to_owned();
    own(key).strip_suffix(COPY) == Some(&*own(name))
}

fn find(ranges: &[Range], id: u32) -> Option<u32> {
    ranges.iter().find_map(|range| {
        let offset = id.checked_sub(range.inside)?;
        (offset < range.count).then(|| range.outside + offset)
    })
}

/// Reads ranges, which neither overlap nor reach the last id, which is nobody's (`(uid_t) -1`).
fn ranges(text: &str) -> Result<Vec<Range>, String> {
    let mut ranges: Vec<Range> = Vec::new();
    for part in text.split(',') {
        let numbers: Option<Vec<u32>> = part
            .split(':')
            .map(|number| match number.starts_with('+') {
                true => None,
                false => number.parse().ok(),
            })
            .collect();
        let Some([inside, outside, count]) = numbers.as_deref() else {
            return Err(format!("{part:?} is not CONTAINER:HOST:COUNT"));
        };
        let range = Range {
            inside: *inside,
            outside: *outside,
            count: *count,
        };
        let ends = |start: u32| start.checked_add(range.count).is_some();
        if range.count == 0 || !ends(range.inside) || !ends(range.outside) {
            return Err(format!("{part:?} is no range of ids"));
        }
        if let Some(other) = ranges.iter().find(|other| overlap(other, &range)) {
            return Err(format!(
                "{part:?} and {}:{}:{} overlap",
                other.inside, other.outside, other.count
            ));
        }
        ranges.push(range);
        if ranges.len() > MOST_RANGES {
            return Err(format!("it has more than {MOST_RANGES} ranges"));
        }
    }
    Ok(ranges)
}

fn overlap(one: &Range, other: &Range) -> bool {
    let meet = |a: u32, b: u32| a < b.saturating_add(other.count) && b < a.saturating_add(one.count);
    meet(one.inside, other.inside) || meet(one.outside, other.outside)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn mapping(users: &str, groups: &str) -> Result<Option<IdMapping>, SnapshotError> {
        let texts = [users, groups];
        let labels = LABELS.iter().zip(texts).filter(|(_, text)| *text != "-");
        IdMapping::of(
            &labels
                .map(|(name, text)| ((*name).to_owned(), text.to_owned()))
                .collect(),
        )
    }

    #[test]
    fn ids_are_mapped() {
        let found = mapping("0:100000:1000,1000:5:1", "0:200000:65536")
            .unwrap()
            .unwrap();
        assert_eq!(found.owner(0, 0), (100_000, 200_000));
        assert_eq!(found.owner(999, 33), (100_999, 200_033));
        assert_eq!(found.owner(1000, 65_536), (5, 200_000));
        assert_eq!(
            found.options(),
            ["uidmap=0:100000:1000,1000:5:1", "gidmap=0:200000:65536"]
        );
        assert_eq!(mapping("-", "-").unwrap(), None);
    }

    #[test]
    fn mappings_that_no_namespace_can_have_are_refused() {
        let many = (0..341)
            .map(|n| format!("{n}:{n}:1"))
            .collect::<Vec<_>>()
            .join(",");
        for (users, says) in [
            ("-", "missing"),
            ("1:100000:10", "root"),
            ("0:100000", "CONTAINER:HOST:COUNT"),
            ("0:1:2:3", "CONTAINER:HOST:COUNT"),
            ("0:-5:10", "CONTAINER:HOST:COUNT"),
            ("0:+5:10", "CONTAINER:HOST:COUNT"),
            ("0:5:10 ", "CONTAINER:HOST:COUNT"),
            ("0:5:10,", "CONTAINER:HOST:COUNT"),
            ("0:4294967296:1", "CONTAINER:HOST:COUNT"),
            ("0:5:0", "no range"),
            ("0:4294967295:1", "no range"),
            ("0:5:4294967295", "no range"),
            ("0:5:10,9:100:1", "overlap"),
            ("0:5:10,20:14:1", "overlap"),
            (many.as_str(), "340"),
        ] {
            let refused = mapping(users, "0:0:10").unwrap_err();
            assert!(refused.message.contains(says), "{users}: {refused}");
            assert_eq!(refused.kind, crate::ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn containerds_copy_is_known_by_its_names() {
        assert!(is_copy("k8s.io/41/sha256:ab-remap", "k8s.io/42/sha256:ab"));
        assert!(is_copy("sha256:ab-0-100000-remap", "sha256:ab-0-100000"));
        assert!(!is_copy("default/3/web", "default/4/saved"));
        assert!(!is_copy("default/3/web-remap", "default/4/saved"));
    }
}

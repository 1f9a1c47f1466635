//! The snapshots that a client wants listed: containerd's filters.
//!
//! ```text
//! filter   = selector *("," selector)          every selector must fit
//! selector = path [operator value]             without an operator: the field must be there
//! path     = field *("." field)
//! field    = quoted / 1*(letter / digit / "_")
//! operator = "==" / "!=" / "~="
//! value    = quoted / 1*(anything but a comma or a space)
//! ```
//!
//! A quoted text stands between double quotes, with the escapes of a Go string; after `~=`, which compares with a regular expression,
//! slashes or bars will do too. Fields are `name`, `parent`, `kind` and `labels.NAME`. Of several filters one must fit.

mod parse;
mod selector;

use crate::api::Info;
use crate::error::SnapshotError;
use selector::Selector;

/// Several filters, of which one must fit; all snapshots fit none.
#[derive(Clone, Debug, Default)]
pub struct Filters(Vec<Vec<Selector>>);

impl Filters {
    /// Reads filters.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`], saying where one ceases to make sense.
    pub fn parse<S: AsRef<str>>(filters: &[S]) -> Result<Filters, SnapshotError> {
        let parsed = filters.iter().map(|filter| parse::filter(filter.as_ref()));
        parsed.collect::<Result<_, _>>().map(Filters)
    }

    /// Whether a snapshot fits.
    pub fn fit(&self, info: &Info) -> bool {
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|filter| filter.iter().all(|selector| selector.fits(info)))
    }

    /// Whether a snapshot may fit, as far as its name and its record tell without being read. Each time containerd pulls a lazy layer,
    /// it asks for one of all snapshots by its labels. Reading records takes most of that time.
    pub fn may_fit(&self, name: &str, stored: &[u8]) -> bool {
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|filter| filter.iter().all(|selector| selector.may_fit(name, stored)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use prost::Message;

    use super::*;
    use crate::api::Kind;
    use crate::record::Record;

    fn snapshots() -> Vec<Info> {
        let info = |name: &str, parent: &str, kind: Kind, labels: &[(&str, &str)]| Info {
            name: name.to_owned(),
            parent: parent.to_owned(),
            kind: kind.into(),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Info::default()
        };
        vec![
            info(
                "base",
                "",
                Kind::Committed,
                &[("containerd.io/snapshot.ref", "sha256:ab"), ("n", "1")],
            ),
            info("top", "base", Kind::Committed, &[("n", "2"), ("a.b", "x, y")]),
            info("run", "top", Kind::Active, &[("say \"it\"", "é")]),
            info("look", "top", Kind::View, &[]),
        ]
    }

    fn found(filters: &[&str]) -> String {
        let filters = Filters::parse(filters).unwrap();
        let all = snapshots();
        let stored = |info: &Info| {
            let mut record = Record {
                kind: info.kind,
                parent: info.parent.clone(),
                ..Record::default()
            };
            record.set_labels(info.labels.clone());
            record.encode_to_vec()
        };
        let fit = all.iter().filter(|info| filters.fit(info));
        let fit = fit.inspect(|info| assert!(filters.may_fit(&info.name, &stored(info)), "{filters:?}"));
        fit.map(|info| info.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_fits() {
        for (filters, expected) in [
            (&[][..], "base top run look"),
            (&[""], "base top run look"),
            (&["kind==committed"], "base top"),
            (&["kind==active", "name==base"], "base run"),
            (&["kind==committed,labels.n==2"], "top"),
            (&["labels.n"], "base top"),
            (&["labels.n!=1"], "top run look"),
            (
                &["labels.\"containerd.io/snapshot.ref\"==sha256:ab,parent==\"\""],
                "base",
            ),
            (&["labels.a.b==\"x, y\""], "top"),
            (&["labels.\"say \\\"it\\\"\"==\"\\u00e9\""], "run"),
            (&["labels.\"say \\\"it\\\"\"==\"\\xc3\\251\""], "run"),
            (&["name~=^(run|look)$"], "run look"),
            (&["name~=/o{2}k/ , kind"], "look"),
            (&["name~=|r.n|"], "run"),
            (&["name~=(", "name==top"], "top"),
            (&["nothing"], ""),
            (&["nothing!=x,name==run"], "run"),
            (&["name == top"], "top"),
        ] {
            assert_eq!(found(filters), expected, "{filters:?}");
        }
    }

    #[test]
    fn what_cannot_fit_is_told_unread() {
        let record = Record {
            parent: "base".to_owned(),
            labels: [("n".to_owned(), "sha256:ab".to_owned())].into(),
            ..Record::default()
        };
        let stored = record.encode_to_vec();
        for (filters, expected) in [
            (&["name==top"][..], true),
            (&["name==other"], false),
            (&["name==other", "labels.n==sha256:ab"], true),
            (&["labels.n==sha256:cd"], false),
            (&["labels.n==sha256:ab,parent==other"], false),
            (&["kind==view"], true),
            (&["nothing!=x"], true),
        ] {
            let parsed = Filters::parse(filters).unwrap();
            assert_eq!(parsed.may_fit("top", &stored), expected, "{filters:?}");
        }
    }

    #[test]
    fn what_makes_no_sense() {
        for filter in [
            ",",
            "name==",
            "name==a,",
            "labels.",
            "name=a",
            "name===a",
            "name==a b",
            "labels.|n|==1",
            "name==/run/",
            "labels.\"n",
            "labels.\"\\q\"",
            "labels.\"\\xff\"",
            "labels.\"\\ud800\"",
            "labels.?n",
            "name\0==x",
        ] {
            let refused = Filters::parse(&[filter]).unwrap_err();
            assert!(refused.message.contains("filter"), "{filter:?}: {refused}");
        }
    }
}

//! Finds the image that a name means on this host: an image by its reference, by its manifest's digest, or by the first digits of that, as
//! `xebec images` prints them.

use xebec_format::digest::Digest;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};

use crate::record::{ImageRecord, Records};

/// Fewest digits by which something can be named: fewer are too often the beginning of several.
const SHORTEST: usize = 6;

impl Records {
    /// The image that a name means. `None` if this host knows none of that name.
    ///
    /// # Errors
    /// When the name is the first digits of several images.
    pub fn named(&self, name: &str) -> Result<Option<ImageRecord>, Failure> {
        let by_digest = name.parse::<Digest>().ok().and_then(|digest| self.get(digest));
        let by_reference = || {
            let reference: Reference = name.parse().ok()?;
            let by_digest = reference.digest().and_then(|digest| self.get(digest));
            by_digest.or_else(|| self.find(&reference.to_string()))
        };
        match by_digest.or_else(by_reference) {
            Some(record) => Ok(Some(record)),
            // Last: the digits may be an image's name as well.
            None => by_first_digits(
                self.list(),
                name,
                "images",
                |record| record.manifest_digest,
                described,
            ),
        }
    }
}

/// The one of `all` whose digest begins with `digits`, with or without `sha256:`. `None` if there is none, or these are not digits
/// enough. The error names the kind of things (`what`), and each of them.
///
/// # Errors
/// When there are several.
pub fn by_first_digits<T>(
    all: impl IntoIterator<Item = T>,
    digits: &str,
    what: &str,
    digest: impl Fn(&T) -> Digest,
    describe: impl Fn(&T) -> String,
) -> Result<Option<T>, Failure> {
    let digits = without_algorithm(digits);
    if digits.len() < SHORTEST || !are_digits(digits) {
        return Ok(None);
    }
    let digits = digits.to_ascii_lowercase();
    let all = all.into_iter();
    let mut found: Vec<T> = all.filter(|one| digest(one).hex().starts_with(&digits)).collect();
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let several: Vec<String> = found.iter().map(describe).collect();
    let message = format!(
        "{} {what} begin with {digits}; give more digits of one: {}",
        several.len(),
        several.join(", ")
    );
    Err(Failure::new(FailureKind::Usage, message))
}

/// The message for a name that means no image on this host. `otherwise` is another way for the user, as a clause; it is left out
/// where the name looks like too few digits of an image.
pub fn not_known(name: &str, otherwise: &str) -> Failure {
    let digits = without_algorithm(name);
    let message = match !digits.is_empty() && digits.len() < SHORTEST && are_digits(digits) {
        true => format!(
            "{name} is not known on this host: at least {SHORTEST} digits of its digest name an image; `xebec images` lists \
             those that are known"
        ),
        false => {
            format!("{name} is not known on this host; `xebec images` lists those that are{otherwise}")
        }
    };
    Failure::new(FailureKind::NotFound, message)
}

fn without_algorithm(digits: &str) -> &str {
    digits.strip_prefix("sha256:").unwrap_or(digits)
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn described(record: &ImageRecord) -> String {
    match record.references.first() {
        Some(name) => format!("{} ({name})", record.manifest_digest),
        None => record.manifest_digest.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn record(manifest: &str) -> ImageRecord {
        ImageRecord {
            references: ["registry.example.com/app:1".to_owned()].into(),
            former: BTreeSet::new(),
            indexes: BTreeMap::new(),
            platforms: BTreeSet::new(),
            manifest_digest: Digest::of(manifest.as_bytes()),
            media_type: String::new(),
            manifest: manifest.to_owned(),
            config: String::new(),
            layers: Vec::new(),
            last_used: 1,
            pinned: false,
            kept_for: None,
            user: None,
        }
    }

    fn named(records: &[ImageRecord], name: &str) -> Result<Option<ImageRecord>, Failure> {
        let records = records.iter().cloned();
        by_first_digits(
            records,
            name,
            "images",
            |record| record.manifest_digest,
            described,
        )
    }

    #[test]
    fn the_first_digits_name_an_image() {
        let records: Vec<ImageRecord> = ["one", "two", "three"].map(record).into();
        for known in &records {
            let hex = known.manifest_digest.hex();
            for name in [&hex[..6], &hex[..12], &hex, &hex[..12].to_uppercase()] {
                assert_eq!(named(&records, name).unwrap().as_ref(), Some(known));
                let prefixed = format!("sha256:{name}");
                assert_eq!(named(&records, &prefixed).unwrap().as_ref(), Some(known));
            }
            for name in [&hex[..5], "", "sha256:", "nothex", "ffffffffffff"] {
                assert_eq!(named(&records, name).unwrap(), None, "{name}");
            }
        }
        let mut twin = records[0].clone();
        twin.references = BTreeSet::new();
        let both = [records[0].clone(), twin];
        let short = records[0].manifest_digest.short();
        let failure = named(&both, &short).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage);
        let whole = records[0].manifest_digest.to_string();
        assert!(
            failure.message.contains(&whole) && failure.message.contains("app:1"),
            "{failure}"
        );
    }

    /// The advice to pull an image does not help a user who removes one, and too few digits are not the name of one.
    #[test]
    fn too_few_digits_are_named_as_such() {
        for name in ["3a40", "sha256:3a404", "3A40"] {
            let said = not_known(name, ", and more").message;
            assert!(
                said.starts_with(name) && said.contains("at least 6 digits"),
                "{said}"
            );
            assert!(!said.contains("and more"), "{said}");
        }
        for name in ["3a4045b9cdcd", "web", "web:1", "sha256:", ""] {
            let said = not_known(name, ", and more").message;
            assert!(said.ends_with("lists those that are, and more"), "{said}");
        }
        assert!(not_known("web", "").message.ends_with("lists those that are"));
    }
}

//! An image by the first digits of its manifest's digest, as `xebec images` prints them.

use xebec_protocol::failure::{Failure, FailureKind};

use crate::record::ImageRecord;

/// Fewest digits by which an image can be named: fewer are too often the beginning of several.
const SHORTEST: usize = 6;

/// The image whose manifest's digest begins with `digits`, with or without `sha256:`. `None` if there is none, or these are not
/// digits enough.
///
/// # Errors
/// When there are several.
pub(crate) fn by_first_digits(records: &[ImageRecord], digits: &str) -> Result<Option<ImageRecord>, Failure> {
    let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
    if digits.len() < SHORTEST || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let digits = digits.to_ascii_lowercase();
    let found: Vec<&ImageRecord> = records
        .iter()
        .filter(|record| record.manifest_digest.hex().starts_with(&digits))
        .collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let several: Vec<String> = several.iter().map(|record| described(record)).collect();
            let message = format!(
                "{} images begin with {digits}; give more digits of one: {}",
                several.len(),
                several.join(", ")
            );
            Err(Failure::new(FailureKind::Usage, message))
        }
    }
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

    use xebec_format::digest::Digest;

    use super::*;

    fn record(manifest: &str) -> ImageRecord {
        ImageRecord {
            references: ["registry.example.com/app:1".to_owned()].into(),
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

    #[test]
    fn the_first_digits_name_an_image() {
        let records: Vec<ImageRecord> = ["one", "two", "three"].map(record).into();
        for known in &records {
            let hex = known.manifest_digest.hex();
            for name in [&hex[..6], &hex[..12], &hex, &hex[..12].to_uppercase()] {
                assert_eq!(by_first_digits(&records, name).unwrap().as_ref(), Some(known));
                let prefixed = format!("sha256:{name}");
                assert_eq!(
                    by_first_digits(&records, &prefixed).unwrap().as_ref(),
                    Some(known)
                );
            }
            for name in [&hex[..5], "", "sha256:", "nothex", "ffffffffffff"] {
                assert_eq!(by_first_digits(&records, name).unwrap(), None, "{name}");
            }
        }
        let mut twin = records[0].clone();
        twin.references = BTreeSet::new();
        let both = [records[0].clone(), twin];
        let short = records[0].manifest_digest.short();
        let failure = by_first_digits(&both, &short).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage);
        let whole = records[0].manifest_digest.to_string();
        assert!(
            failure.message.contains(&whole) && failure.message.contains("app:1"),
            "{failure}"
        );
    }
}

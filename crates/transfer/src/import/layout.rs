//! The layout of the directory of CNCF distribution. No input or output. All paths are below `docker/registry/v2`.

use xebec_store::{Digest, RepositoryName, Tag};

/// The algorithms whose digests it may have.
pub(super) const ALGORITHMS: [&str; 2] = ["sha256", "sha512"];
/// The file that has a blob's bytes.
pub(super) const DATA: &str = "data";

/// The directory of a blob's file.
pub(super) fn blob(digest: &Digest) -> String {
    let (algorithm, hex) = (digest.algorithm(), digest.hex());
    format!("blobs/{algorithm}/{}/{hex}", hex.get(..2).unwrap_or_default())
}

/// The file of a blob, or of a manifest's bytes.
pub(super) fn data(digest: &Digest) -> String {
    format!("{}/{DATA}", blob(digest))
}

/// The directory of a repository, or of those whose names begin with this one; of all, if it is empty.
pub(super) fn repository(name: &str) -> String {
    match name.is_empty() {
        true => "repositories".to_owned(),
        false => format!("repositories/{name}"),
    }
}

pub(super) fn tags(name: &RepositoryName) -> String {
    format!("repositories/{name}/_manifests/tags")
}

/// The file that says which manifest a tag names.
pub(super) fn tag(name: &RepositoryName, tag: &Tag) -> String {
    format!("{}/{tag}/current/link", tags(name))
}

/// The directory of a repository's manifests by one algorithm.
pub(super) fn revisions(name: &RepositoryName, algorithm: &str) -> String {
    format!("repositories/{name}/_manifests/revisions/{algorithm}")
}

/// The file that says that a repository has a manifest.
pub(super) fn revision(name: &RepositoryName, digest: &Digest) -> String {
    format!(
        "{}/{}/link",
        revisions(name, digest.algorithm().name()),
        digest.hex()
    )
}

/// The file that says that a repository has a blob.
pub(super) fn layer(name: &RepositoryName, digest: &Digest) -> String {
    format!(
        "repositories/{name}/_layers/{}/{}/link",
        digest.algorithm(),
        digest.hex()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_distribution() {
        let hex = "ab".repeat(32);
        let digest: Digest = format!("sha256:{hex}").parse().unwrap();
        let name: RepositoryName = "team/app".parse().unwrap();
        assert_eq!(data(&digest), format!("blobs/sha256/ab/{hex}/data"));
        assert_eq!(
            revision(&name, &digest),
            format!("repositories/team/app/_manifests/revisions/sha256/{hex}/link")
        );
        assert_eq!(
            layer(&name, &digest),
            format!("repositories/team/app/_layers/sha256/{hex}/link")
        );
        assert_eq!(
            tag(&name, &"v1".parse().unwrap()),
            "repositories/team/app/_manifests/tags/v1/current/link"
        );
    }
}
